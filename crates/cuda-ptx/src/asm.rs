//! A macro assembler for PTX: registers without end, labels, and text.
//!
//! Kernels are Rust functions that call [`Asm`]; loops of Rust unroll, functions of Rust are macros, and what remains is
//! one straight list of instructions. Nothing here knows of an instruction's meaning.

use std::fmt::{self, Display, Write as _};

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Predicate,
    Bits16,
    Bits32,
    Bits64,
    Float,
}

const CLASSES: [(Class, &str, &str); 5] = [
    (Class::Predicate, "pred", "%p"),
    (Class::Bits16, "b16", "%h"),
    (Class::Bits32, "b32", "%r"),
    (Class::Bits64, "b64", "%d"),
    (Class::Float, "f32", "%f"),
];

/// A virtual register; the assembler behind this one assigns real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg {
    class: Class,
    index: u32,
}

impl Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", CLASSES[self.class as usize].2, self.index)
    }
}

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(u32);

impl Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "$L{}", self.0)
    }
}

/// A kernel parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Param {
    /// A tensor map of 128 bytes.
    Map(&'static str),
    /// An address.
    Address(&'static str),
    /// 64 bits.
    Wide(&'static str),
    /// 32 bits.
    Int(&'static str),
}

impl Param {
    fn declaration(self) -> String {
        match self {
            Self::Map(name) => format!(".param .align 64 .b8 {name}[128]"),
            Self::Address(name) | Self::Wide(name) => format!(".param .u64 {name}"),
            Self::Int(name) => format!(".param .u32 {name}"),
        }
    }
}

/// What stands before a kernel's body.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) params: &'a [Param],
    /// Most threads of a block.
    pub(crate) threads: u32,
    /// Registers of a thread to plan with. Left to itself the assembler goes for many threads, and puts off loads that
    /// should be under way together.
    pub(crate) registers: Option<u32>,
    /// Blocks per cluster.
    pub(crate) cluster: u32,
    /// Static shared memory of a block, named `shared`; `None` for dynamic.
    pub(crate) shared: Option<u32>,
}

/// Instructions written so far.
#[derive(Default)]
pub(crate) struct Asm {
    body: String,
    registers: [u32; CLASSES.len()],
    labels: u32,
}

/// Writes one instruction, with what is in braces put in its place.
macro_rules! op {
    ($asm:expr, $($text:tt)*) => { $asm.line(format_args!($($text)*)) };
}
pub(crate) use op;

impl Asm {
    fn register(&mut self, class: Class) -> Reg {
        let count = &mut self.registers[class as usize];
        *count += 1;
        Reg { class, index: *count }
    }

    pub(crate) fn pred(&mut self) -> Reg {
        self.register(Class::Predicate)
    }

    pub(crate) fn bits16(&mut self) -> Reg {
        self.register(Class::Bits16)
    }

    pub(crate) fn bits32(&mut self) -> Reg {
        self.register(Class::Bits32)
    }

    pub(crate) fn bits64(&mut self) -> Reg {
        self.register(Class::Bits64)
    }

    pub(crate) fn float(&mut self) -> Reg {
        self.register(Class::Float)
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<Reg> {
        (0..count).map(|_| self.float()).collect()
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels)
    }

    pub(crate) fn place(&mut self, label: Label) {
        let _ = writeln!(self.body, "{label}:");
    }

    pub(crate) fn line(&mut self, text: fmt::Arguments<'_>) {
        let _ = writeln!(self.body, "\t{text}");
    }

    /// A parameter of 32 bits.
    pub(crate) fn int(&mut self, name: &str) -> Reg {
        let to = self.bits32();
        op!(self, "ld.param.u32 {to}, [{name}];");
        to
    }

    /// A parameter of 64 bits.
    pub(crate) fn wide(&mut self, name: &str) -> Reg {
        let to = self.bits64();
        op!(self, "ld.param.u64 {to}, [{name}];");
        to
    }

    /// A parameter that is an address in global memory.
    pub(crate) fn address(&mut self, name: &str) -> Reg {
        let (from, to) = (self.wide(name), self.bits64());
        op!(self, "cvta.to.global.u64 {to}, {from};");
        to
    }

    /// The address of a tensor map among the parameters.
    pub(crate) fn map(&mut self, name: &str) -> Reg {
        let (from, to) = (self.bits64(), self.bits64());
        op!(self, "mov.b64 {from}, {name};");
        op!(self, "cvta.param.u64 {to}, {from};");
        to
    }

    /// `instruction to, a, b` into a new register of 32 bits.
    pub(crate) fn bin(&mut self, instruction: &str, a: impl Display, b: impl Display) -> Reg {
        let to = self.bits32();
        op!(self, "{instruction} {to}, {a}, {b};");
        to
    }

    /// `instruction to, a, b` into a new register of 64 bits.
    pub(crate) fn bin64(&mut self, instruction: &str, a: impl Display, b: impl Display) -> Reg {
        let to = self.bits64();
        op!(self, "{instruction} {to}, {a}, {b};");
        to
    }

    /// `instruction to, a, b` into a new f32.
    pub(crate) fn binf(&mut self, instruction: &str, a: impl Display, b: impl Display) -> Reg {
        let to = self.float();
        op!(self, "{instruction} {to}, {a}, {b};");
        to
    }

    /// `instruction to, a, b` into a new predicate.
    pub(crate) fn test(&mut self, instruction: &str, a: impl Display, b: impl Display) -> Reg {
        let to = self.pred();
        op!(self, "setp.{instruction} {to}, {a}, {b};");
        to
    }

    /// A new register of 32 bits with a value.
    pub(crate) fn set(&mut self, value: impl Display) -> Reg {
        let to = self.bits32();
        op!(self, "mov.b32 {to}, {value};");
        to
    }

    /// A choice between values of 32 bits.
    pub(crate) fn select(&mut self, yes: impl Display, no: impl Display, when: Reg) -> Reg {
        let to = self.bits32();
        op!(self, "selp.b32 {to}, {yes}, {no}, {when};");
        to
    }

    /// `base + index * scale` in bytes, the index taken as signed.
    pub(crate) fn at(&mut self, base: Reg, index: Reg, scale: u32) -> Reg {
        let to = self.bits64();
        op!(self, "mad.wide.s32 {to}, {index}, {scale}, {base};");
        to
    }

    /// The module's text.
    pub(crate) fn finish(self, entry: &Entry<'_>) -> String {
        let mut text = String::from(".version 8.3\n.target sm_90a\n.address_size 64\n");
        match entry.shared {
            None => text.push_str(".extern .shared .align 1024 .b8 shared[];\n"),
            Some(bytes) => {
                let _ = writeln!(text, ".shared .align 16 .b8 shared[{bytes}];");
            }
        }
        let params: Vec<_> = entry.params.iter().map(|param| format!("\t{}", param.declaration())).collect();
        let _ = writeln!(text, ".visible .entry {}(\n{}\n)", entry.name, params.join(",\n"));
        let _ = writeln!(text, ".maxntid {}, 1, 1", entry.threads);
        if let Some(registers) = entry.registers {
            let _ = writeln!(text, ".maxnreg {registers}");
        }
        if entry.cluster > 1 {
            let _ = writeln!(text, ".reqnctapercluster {}, 1, 1", entry.cluster);
        }
        text.push_str("{\n");
        for ((_, kind, prefix), count) in CLASSES.iter().zip(self.registers) {
            if count > 0 {
                let _ = writeln!(text, "\t.reg .{kind} {prefix}<{}>;", count + 1);
            }
        }
        text.push_str(&self.body);
        text.push_str("}\n");
        text
    }
}
