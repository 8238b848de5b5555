//! The files of a bundle in memory, and the list of their digests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::identity::Digest;

/// The file that lists the digests of all others, in the format of `sha256sum`.
pub const SUMS: &str = "SHA256SUMS";

/// Named contents, without [`SUMS`] itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    folder: PathBuf,
    contents: BTreeMap<String, Vec<u8>>,
}

impl Files {
    /// Files that are not in a folder yet.
    pub fn new(contents: BTreeMap<String, Vec<u8>>) -> Self {
        Self { folder: PathBuf::new(), contents }
    }

    pub(super) fn in_folder(folder: &Path, contents: BTreeMap<String, Vec<u8>>) -> Self {
        Self { folder: folder.to_owned(), contents }
    }

    /// Name and contents of each.
    pub fn all(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.contents
    }

    /// Where a file is, for messages.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The text of [`SUMS`]: a line for each file, in the order of names.
    pub fn sums(&self) -> String {
        self.contents.iter().map(|(name, text)| format!("{}  {name}\n", Digest::of(text).hex())).collect()
    }
}

/// Reads the text of [`SUMS`]: only what [`Files::sums`] writes.
///
/// # Errors
/// Says which line is wrong and how.
pub(super) fn parse_sums(text: &str) -> Result<BTreeMap<String, Digest>, String> {
    let mut sums = BTreeMap::<String, Digest>::new();
    let lines = text.strip_suffix('\n').ok_or("does not end with a line end")?;
    for (index, line) in lines.split('\n').enumerate() {
        let wrong = |why: &str| format!("line {}: {why}", index + 1);
        let (digits, name) = line.split_once("  ").ok_or_else(|| wrong("expected a digest, two spaces and a name"))?;
        let digest = Digest::from_hex(digits).map_err(|error| wrong(&error.to_string()))?;
        plain_name(name).map_err(|why| wrong(&format!("{name:?} {why}")))?;
        if sums.last_key_value().is_some_and(|(last, _)| last.as_str() >= name) {
            return Err(wrong("names are not in order"));
        }
        sums.insert(name.to_owned(), digest);
    }
    Ok(sums)
}

/// Longest name of a file in a bundle.
const LONGEST_NAME: usize = 64;

/// Only names that mean the same on every system and lead nowhere else.
///
/// # Errors
/// Says what names may be.
pub(crate) fn plain_name(name: &str) -> Result<(), &'static str> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let ends = name.ends_with(".json") || name.ends_with(".log");
    if name.len() <= LONGEST_NAME && name.bytes().all(plain) && !name.starts_with('.') && ends {
        return Ok(());
    }
    Err("is no name of a file in a bundle: lower-case letters, digits, - and _, ending with .json or .log")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_survive_their_text() {
        let contents = [("a.json", "1"), ("b.log", "2")].map(|(name, text)| (name.to_owned(), text.into()));
        let files = Files::new(contents.into());
        let sums = parse_sums(&files.sums()).expect("it is its own text");
        assert_eq!(sums.keys().collect::<Vec<_>>(), ["a.json", "b.log"]);
        assert_eq!(sums["a.json"], Digest::of(b"1"));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in
            ["../a.json", "/a.json", ".a.json", "a/b.json", "A.json", "a.json ", "c:a.json", "a", "", "..", "ä.json"]
        {
            assert!(plain_name(name).is_err(), "{name}");
        }
        plain_name("run.json").expect("it is plain");
    }

    #[test]
    fn lists_that_say_the_same_otherwise_are_refused() {
        let digits = Digest::of(b"").hex();
        let wrong = [
            format!("{digits}  a.json"),
            format!("{digits} a.json\n"),
            format!("{}  a.json\n", digits.to_uppercase()),
            format!("{digits}  b.json\n{digits}  a.json\n"),
            format!("{digits}  a.json\n{digits}  a.json\n"),
            format!("{digits}  a.json\n\n"),
            format!("{digits}  ../a.json\n"),
            String::new(),
        ];
        for text in wrong {
            assert!(parse_sums(&text).is_err(), "{text:?}");
        }
    }
}
