//! One measurement at a time: two would slow each other and both would be wrong.

use std::fs::{File, OpenOptions, TryLockError};

use crate::failure::Failure;

/// In the folder for temporary files, shared by all users of the machine.
const NAME: &str = "kernelproof-measuring.lock";

/// Held while measuring. The operating system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Exclusive {
    _file: Option<File>,
}

impl Exclusive {
    /// Takes the machine.
    ///
    /// # Errors
    /// When another measurement is running.
    pub(crate) fn take() -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o666);
        // Where the file cannot be made, for want of rights or of a folder, nobody can be warned.
        let Ok(file) = options.open(std::env::temp_dir().join(NAME)) else { return Ok(Self { _file: None }) };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let failure =
                    Failure::unavailable("another evaluation is running on this machine; two would slow each other");
                Err(failure.help("wait until it has ended, or stop it"))
            }
            _ => Ok(Self { _file: Some(file) }),
        }
    }
}
