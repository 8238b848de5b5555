//! The benchmark suite: sixteen cases of one model, from 256 to 8192 tokens.

use sha2::{Digest, Sha256};

use crate::dims::Dims;

/// One entry of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// S, the sequence length.
    pub seq: usize,
    /// B, the batch size.
    pub batch: usize,
}

/// The sixteen cases, in the order in which tables list them. E = 1536, H = 24, K = 4, D = R = 96.
///
/// Source: the axes of NVIDIA SOL-ExecBench L2/064.
pub const SUITE: [Case; 16] = [
    Case { seq: 128, batch: 2 },
    Case { seq: 128, batch: 16 },
    Case { seq: 128, batch: 32 },
    Case { seq: 128, batch: 64 },
    Case { seq: 256, batch: 4 },
    Case { seq: 256, batch: 8 },
    Case { seq: 293, batch: 2 },
    Case { seq: 512, batch: 8 },
    Case { seq: 541, batch: 4 },
    Case { seq: 1024, batch: 2 },
    Case { seq: 1024, batch: 4 },
    Case { seq: 1321, batch: 2 },
    Case { seq: 2048, batch: 1 },
    Case { seq: 2048, batch: 4 },
    Case { seq: 4096, batch: 1 },
    Case { seq: 8192, batch: 1 },
];

impl Case {
    /// The sizes of this case.
    pub fn dims(self) -> Dims {
        Dims::new(self.batch, self.seq, 1536, 24, 4, 96).expect("the suite's sizes are valid, as its test shows")
    }

    /// The name a person types: `s128b2`.
    pub fn name(self) -> String {
        format!("s{}b{}", self.seq, self.batch)
    }

    /// The stable id: the first 12 hex digits of the SHA-256 of the axes as canonical JSON (RFC 8785). It changes
    /// when any axis does, and with nothing else.
    pub fn id(self) -> String {
        id_of(self.dims())
    }

    /// The case with this name or id.
    pub fn find(name_or_id: &str) -> Option<Self> {
        SUITE.into_iter().find(|case| case.name() == name_or_id || case.id() == name_or_id)
    }
}

fn id_of(dims: Dims) -> String {
    let axes = format!(
        r#"{{"B":{},"D":{},"E":{},"H":{},"K":{},"R":{},"S":{}}}"#,
        dims.batch(),
        dims.head_dim(),
        dims.hidden(),
        dims.query_heads(),
        dims.kv_heads(),
        dims.rotary_dim(),
        dims.seq()
    );
    Sha256::digest(axes).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_distinct() {
        let ids: std::collections::BTreeSet<String> = SUITE.into_iter().map(Case::id).collect();
        assert_eq!(ids.len(), SUITE.len());
        assert_eq!(SUITE[0].id(), "7803e88b316d");
        assert_eq!(Case::find("s8192b1"), Some(SUITE[15]));
        assert_eq!(Case::find(&SUITE[3].id()), Some(SUITE[3]));
        assert_eq!(Case::find("s1b1"), None);
    }
}
