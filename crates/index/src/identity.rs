//! The identity of a manifest: the SHA-256 of its meaning, whatever its spelling.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What precedes the digits, so that another hash can follow one day.
const PREFIX: &str = "sha256:";

/// The largest integer up to which every integer is a double of its own. RFC 8785 writes numbers as doubles, so two larger
/// ones can have one spelling and thereby one identity.
const LARGEST_EXACT: u64 = 1 << 53;

/// A SHA-256, written `sha256:` and 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// Why a text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {found:?}, expected sha256: and 64 lower-case hex digits")]
pub struct NotADigest {
    found: String,
}

/// Why a value has no canonical form.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotCanonical {
    /// Two integers of this size can have the same canonical form.
    #[error("the integer {found} is larger than 2^53, beyond which canonical JSON does not tell integers apart")]
    Integer {
        /// The integer.
        found: String,
    },
    /// Not a JSON value at all, such as NaN.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The 64 hex digits without the prefix.
    pub fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first 12 digits: enough to name a folder, too few to trust.
    pub fn short(self) -> String {
        self.hex()[..12].to_owned()
    }

    /// Whether its digits begin with these lower-case ones.
    pub fn starts_with(&self, digits: &str) -> bool {
        digits.len() <= 64 && self.digits().zip(digits.bytes()).all(|(one, other)| one == other)
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
        self.0.iter().flat_map(move |byte| [digit(byte >> 4), digit(byte & 15)])
    }

    /// A digest from its digits alone.
    ///
    /// # Errors
    /// When they are not 64 lower-case hex digits.
    pub fn from_hex(digits: &str) -> Result<Self, NotADigest> {
        let refuse = || NotADigest { found: digits.to_owned() };
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(refuse());
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (Some(high), Some(low)) = (value(*high), value(*low)) else { return Err(refuse()) };
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

impl From<Sha256> for Digest {
    fn from(hash: Sha256) -> Self {
        Self(hash.finalize().into())
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digits = text.strip_prefix(PREFIX).ok_or_else(|| NotADigest { found: text.to_owned() })?;
        Self::from_hex(digits)
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Self, NotADigest> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The bytes that RFC 8785 (JSON Canonicalization Scheme) gives for `value`.
///
/// # Errors
/// For NaN, infinities and integers that a double cannot tell from their neighbours.
pub fn canonical<T: Serialize>(value: &T) -> Result<Vec<u8>, NotCanonical> {
    let value = serde_json::to_value(value)?;
    require_exact_integers(&value)?;
    Ok(serde_json_canonicalizer::to_vec(&value)?)
}

fn require_exact_integers(value: &Value) -> Result<(), NotCanonical> {
    match value {
        Value::Array(items) => items.iter().try_for_each(require_exact_integers),
        Value::Object(fields) => fields.values().try_for_each(require_exact_integers),
        Value::Number(number) => {
            let magnitude = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            match magnitude {
                Some(magnitude) if magnitude > LARGEST_EXACT => {
                    Err(NotCanonical::Integer { found: number.to_string() })
                }
                _ => Ok(()),
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn text(value: &Value) -> String {
        String::from_utf8(canonical(value).expect("it has a canonical form")).expect("JSON is UTF-8")
    }

    #[test]
    fn numbers_are_those_of_the_rfc() {
        let vectors = [
            ("3.3743529002094874e-06", "0.0000033743529002094874"),
            ("1e-7", "1e-7"),
            ("0.000001", "0.000001"),
            ("1e21", "1e+21"),
            ("100000000000000000000.0", "100000000000000000000"),
            ("-0.0", "0"),
            ("-0", "0"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("9007199254740992", "9007199254740992"),
            ("333333333.33333329", "333333333.3333333"),
            ("4.50", "4.5"),
            ("2e-3", "0.002"),
        ];
        for (found, expected) in vectors {
            let value: Value = serde_json::from_str(found).expect("it is JSON");
            assert_eq!(text(&value), expected, "{found}");
        }
    }

    /// RFC 8785, section 3.2.3: keys in the order of their UTF-16 code units, so the emoji is before U+FB33.
    #[test]
    fn keys_are_in_the_order_of_the_rfc() {
        let value = json!({
            "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh",
            "1": "One", "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "\u{f6}": "Latin Small Letter O With Diaeresis",
        });
        let canonical = text(&value);
        let order = ["Carriage Return", "One", "Control", "Latin Small", "Euro Sign", "Emoji", "Hebrew"];
        let places: Vec<usize> = order.iter().map(|name| canonical.find(name).expect("it is there")).collect();
        assert!(places.is_sorted(), "{canonical}");
    }

    #[test]
    fn strings_are_escaped_as_in_the_rfc() {
        let value = json!({"string": "\u{20ac}$\u{f}\nA'B\"\\\\\"/"});
        assert_eq!(text(&value), "{\"string\":\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}");
    }

    #[test]
    fn what_a_double_cannot_hold_has_no_identity() {
        let error = canonical(&json!({"samples": [9_007_199_254_740_993_u64]})).expect_err("it is too large");
        assert!(error.to_string().contains("9007199254740993"), "{error}");
        assert!(canonical(&i64::MIN).is_err());
    }

    #[test]
    fn digests_are_read_strictly() {
        let digest = Digest::of(b"");
        let written = digest.to_string();
        assert_eq!(written, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(written.parse(), Ok(digest));
        assert_eq!(digest.short(), "e3b0c44298fc");
        assert!(digest.starts_with("e3b0c4") && digest.starts_with(&digest.hex()) && digest.starts_with(""));
        assert!(!digest.starts_with("e3b0c5") && !digest.starts_with(&format!("{}0", digest.hex())));
        for wrong in [&written[7..], &written[..70], &written.to_uppercase(), "sha256:", &format!("{written}0")] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_finite_number_survives_its_canonical_form(bits in any::<u64>()) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let read: f64 = serde_json::from_str(&text(&json!(number))).expect("it is a number");
            prop_assert_eq!(read, number);
        }
    }
}
