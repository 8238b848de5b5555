//! The embedded cubins: one compressed file per architecture.
//!
//! Layout of the uncompressed file, integers little-endian u32: [`MAGIC`], the number of rows, then for each row the
//! length of its name, the name, the length of its cubin, the cubin.

use std::io::Read;

use crate::error::Error;
use crate::kernel::Arch;

/// First bytes of an uncompressed archive.
pub const MAGIC: &[u8; 8] = b"qkvrope1";

/// Cubins of one architecture by name of their row.
#[derive(Debug, PartialEq, Eq)]
pub struct Archive {
    rows: Vec<(String, Vec<u8>)>,
}

fn embedded(arch: Arch) -> &'static [u8] {
    match arch {
        Arch::Sm80 => include_bytes!("../cubins/sm_80.zst"),
        Arch::Sm86 => include_bytes!("../cubins/sm_86.zst"),
        Arch::Sm89 => include_bytes!("../cubins/sm_89.zst"),
        Arch::Sm90 => include_bytes!("../cubins/sm_90.zst"),
        Arch::Sm100 => include_bytes!("../cubins/sm_100.zst"),
        Arch::Sm103 => include_bytes!("../cubins/sm_103.zst"),
        Arch::Sm120 => include_bytes!("../cubins/sm_120.zst"),
    }
}

impl Archive {
    /// The archive that this library carries for `arch`.
    ///
    /// # Errors
    /// [`Error::Archive`] when the library was built from a damaged file.
    pub fn of(arch: Arch) -> Result<Self, Error> {
        Self::unpack(embedded(arch)).map_err(|why| Error::Archive { arch, why })
    }

    /// The cubin of a row.
    pub fn get(&self, row: &str) -> Option<&[u8]> {
        self.rows.iter().find(|(name, _)| name == row).map(|(_, cubin)| cubin.as_slice())
    }

    /// Names of the rows, in file order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|(name, _)| name.as_str())
    }

    fn unpack(packed: &[u8]) -> Result<Self, String> {
        let mut plain = Vec::new();
        ruzstd::decoding::StreamingDecoder::new(packed)
            .map_err(|error| error.to_string())?
            .read_to_end(&mut plain)
            .map_err(|error| error.to_string())?;
        Self::parse(&plain)
    }

    fn parse(plain: &[u8]) -> Result<Self, String> {
        let mut rest = plain.strip_prefix(MAGIC).ok_or("not an archive of cubins")?;
        let count = take_length(&mut rest)?;
        let mut rows = Vec::new();
        for _ in 0..count {
            let name = take_bytes(&mut rest)?;
            let name = std::str::from_utf8(name).map_err(|error| error.to_string())?.to_owned();
            rows.push((name, take_bytes(&mut rest)?.to_vec()));
        }
        Ok(Self { rows })
    }
}

fn take_length(rest: &mut &[u8]) -> Result<usize, String> {
    let (length, tail) = rest.split_first_chunk::<4>().ok_or("ends inside a length")?;
    *rest = tail;
    Ok(u32::from_le_bytes(*length) as usize)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], String> {
    let length = take_length(rest)?;
    let (bytes, tail) = rest.split_at_checked(length).ok_or("ends inside a row")?;
    *rest = tail;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KERNELS;

    fn plain(rows: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend((rows.len() as u32).to_le_bytes());
        for (name, cubin) in rows {
            out.extend((name.len() as u32).to_le_bytes());
            out.extend(name.as_bytes());
            out.extend((cubin.len() as u32).to_le_bytes());
            out.extend(*cubin);
        }
        out
    }

    #[test]
    fn rows_come_back_by_name() {
        let archive = Archive::parse(&plain(&[("a", b"one"), ("b", b"")])).unwrap();
        assert_eq!(archive.get("a"), Some(b"one".as_slice()));
        assert_eq!(archive.get("b"), Some(b"".as_slice()));
        assert_eq!(archive.get("c"), None);
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = plain(&[("a", b"one"), ("b", b"two")]);
        for length in 0..whole.len() {
            assert!(Archive::parse(&whole[..length]).is_err(), "{length} of {} bytes were accepted", whole.len());
        }
    }

    #[test]
    fn every_architecture_carries_its_rows() {
        for arch in Arch::ALL {
            let archive = Archive::of(arch).unwrap();
            for kernel in KERNELS.iter().filter(|kernel| kernel.targets(arch)) {
                let cubin = archive.get(&kernel.to_string()).unwrap_or_else(|| panic!("{arch} lacks {kernel}"));
                assert_eq!(&cubin[..4], b"\x7fELF", "{kernel} for {arch} is not an ELF file");
            }
        }
    }
}
