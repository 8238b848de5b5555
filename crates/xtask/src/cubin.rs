//! What a cubin says of the resources that its kernel takes.

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};
use serde::{Deserialize, Serialize};

/// Resources of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resources {
    /// Registers per thread.
    pub(crate) registers: u32,
    /// Bytes of local memory per thread: spilled registers.
    pub(crate) stack_frame: u32,
}

/// Attribute codes and the only record format of interest in `.nv.info` (as `cuobjdump -elf` names them).
const FORMAT_SIZED: u8 = 4;
const FRAME_SIZE: u8 = 0x11;
const REGISTER_COUNT: u8 = 0x2f;

/// Reads the section `.nv.info` of a cubin.
pub(crate) fn resources(cubin: &[u8]) -> Result<Resources> {
    let elf = object::File::parse(cubin).context("the cubin is not an ELF file")?;
    let section = elf.section_by_name(".nv.info").context("the cubin has no section .nv.info")?;
    let data = section.data()?;
    let mut registers = None;
    let mut stack_frame = 0;
    let mut rest = data;
    while let [format, attribute, low, high, tail @ ..] = rest {
        // Other formats hold their value in the two bytes just read.
        let payload_bytes = if *format == FORMAT_SIZED { usize::from(u16::from_le_bytes([*low, *high])) } else { 0 };
        let Some((payload, after)) = tail.split_at_checked(payload_bytes) else {
            bail!("section .nv.info ends inside a record");
        };
        // A record is the symbol's index and the value.
        if let (FRAME_SIZE | REGISTER_COUNT, [_, _, _, _, value @ ..]) = (*attribute, payload)
            && let Ok(value) = <[u8; 4]>::try_from(value)
        {
            let value = u32::from_le_bytes(value);
            match *attribute {
                FRAME_SIZE => stack_frame = stack_frame.max(value),
                _ => registers = registers.max(Some(value)),
            }
        }
        rest = after;
    }
    Ok(Resources { registers: registers.context("section .nv.info names no register count")?, stack_frame })
}
