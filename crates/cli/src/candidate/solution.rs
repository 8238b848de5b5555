//! A solution in the public format of SOL-ExecBench: a JSON file with the sources and how to call them.
//!
//! Source: the format's documentation, `docs/solution.md` of NVIDIA/SOL-ExecBench (Apache-2.0).

use std::path::{Component, Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::failure::Failure;

/// Sources are text; beyond this it is some other file.
const LARGEST_FILE_BYTES: u64 = 64 << 20;

const PYTHON: [&str; 2] = ["pytorch", "triton"];
const CPP: [&str; 1] = ["cuda_cpp"];

/// A solution as its file says.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Solution {
    pub(crate) name: String,
    pub(crate) author: String,
    /// SPDX expression; the public format has no field for it, and readers of that format pass over this one.
    #[serde(default)]
    pub(crate) license: Option<String>,
    pub(crate) spec: Spec,
    pub(crate) sources: Vec<SourceFile>,
    /// `sha256:…` of the file.
    #[serde(skip)]
    pub(crate) digest: String,
    /// The file itself, which goes into the record.
    #[serde(skip)]
    pub(crate) file: Vec<u8>,
}

/// How it is built and called.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Spec {
    pub(crate) languages: Vec<String>,
    /// `file::function`.
    pub(crate) entry_point: String,
    /// Whether outputs are the last arguments; otherwise they are returned.
    #[serde(default = "yes")]
    pub(crate) destination_passing_style: bool,
    #[serde(default)]
    pub(crate) dependencies: Vec<String>,
    #[serde(default)]
    pub(crate) compile_options: CompileOptions,
}

/// Flags for compiled languages.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompileOptions {
    pub(crate) cflags: Vec<String>,
    pub(crate) cuda_cflags: Vec<String>,
    pub(crate) ld_flags: Vec<String>,
}

/// One file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    pub(crate) content: String,
}

fn yes() -> bool {
    true
}

impl Solution {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read or is no solution, naming the field.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let found = std::fs::metadata(path).with_context(|| format!("{shown}: cannot be read"))?.len();
        if found > LARGEST_FILE_BYTES {
            let message = format!("{shown}: found {found} bytes, a solution has at most {LARGEST_FILE_BYTES}");
            return Err(Failure::input(message).into());
        }
        let bytes = std::fs::read(path).with_context(|| format!("{shown}: cannot be read"))?;
        Self::parse(&bytes).with_context(|| format!("{shown}: is no solution"))
    }

    /// Reads a file's contents.
    ///
    /// # Errors
    /// When they are no solution, naming the field.
    pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut solution: Self = serde_json::from_slice(bytes)?;
        solution.validate()?;
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        solution.digest = format!("sha256:{digest}");
        solution.file = bytes.to_vec();
        Ok(solution)
    }

    fn validate(&self) -> Result<(), Failure> {
        let languages = &self.spec.languages;
        let known = |language: &String| PYTHON.contains(&language.as_str()) || CPP.contains(&language.as_str());
        if let Some(language) = languages.iter().find(|language| !known(language)) {
            let message = format!("spec.languages: found {language:?}, expected pytorch, triton or cuda_cpp");
            return Err(Failure::input(message));
        }
        let compiled = languages.iter().filter(|language| CPP.contains(&language.as_str())).count();
        if languages.is_empty() || (compiled != 0 && compiled != languages.len()) {
            return Err(Failure::input("spec.languages: expected Python languages or C++ languages, not both or none"));
        }
        for source in &self.sources {
            let inside = source.path.components().all(|part| matches!(part, Component::Normal(_)));
            if !inside || source.path.as_os_str().is_empty() {
                let message = format!("sources: found path {:?}, expected one inside the solution", source.path);
                return Err(Failure::input(message));
            }
            if self.sources.iter().filter(|other| other.path == source.path).count() > 1 {
                return Err(Failure::input(format!("sources: {:?} is given twice", source.path)));
            }
        }
        let Some((file, function)) = self.spec.entry_point.split_once("::") else {
            let found = &self.spec.entry_point;
            return Err(Failure::input(format!("spec.entry_point: found {found:?}, expected file::function")));
        };
        let named = self.sources.iter().any(|source| source.path == Path::new(file));
        if !named || function.is_empty() {
            return Err(Failure::input(format!("spec.entry_point: {file:?} is not among the sources")));
        }
        Ok(())
    }

    /// Whether it is compiled before it can be imported.
    pub(crate) fn is_compiled(&self) -> bool {
        self.spec.languages.iter().any(|language| CPP.contains(&language.as_str()))
    }

    /// Why it cannot run on a CPU, where that is known beforehand.
    pub(crate) fn needs_gpu(&self) -> Option<String> {
        if self.spec.languages.iter().any(|language| language == "triton") {
            return Some("triton solutions need a GPU".to_owned());
        }
        let device_code = self.sources.iter().find(|source| source.path.extension().is_some_and(|found| found == "cu"));
        device_code.map(|source| format!("{} is device code, which needs a GPU", source.path.display()))
    }

    /// The sources to compile, by path.
    pub(crate) fn units(&self) -> Vec<&Path> {
        let is_unit =
            |path: &&Path| path.extension().is_some_and(|found| ["cpp", "cc", "cu"].iter().any(|unit| found == *unit));
        self.sources.iter().map(|source| source.path.as_path()).filter(is_unit).collect()
    }

    /// Writes the sources into `folder`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn unpack(&self, folder: &Path) -> std::io::Result<()> {
        for source in &self.sources {
            let path = folder.join(&source.path);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::write(path, &source.content)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn text(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut value = json!({
            "name": "a", "definition": "d", "author": "me",
            "spec": {"languages": ["pytorch"], "target_hardware": ["local"], "entry_point": "kernel.py::run"},
            "sources": [{"path": "kernel.py", "content": "def run(*x): pass"}]
        });
        change(&mut value);
        value.to_string().into_bytes()
    }

    #[test]
    fn outputs_are_arguments_unless_it_says_otherwise() {
        let solution = Solution::parse(&text(|_| {})).expect("it is a solution");
        assert!(solution.spec.destination_passing_style && !solution.is_compiled());
        assert!(solution.digest.starts_with("sha256:") && solution.needs_gpu().is_none());
        let folder = tempfile::tempdir().expect("a temporary folder");
        solution.unpack(folder.path()).expect("it is writable");
        assert!(folder.path().join("kernel.py").is_file());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |change: fn(&mut Value)| Solution::parse(&text(change)).expect_err("it is wrong").to_string();
        assert!(message(|value| value["spec"]["languages"] = json!(["rust"])).starts_with("spec.languages: found"));
        assert!(message(|value| value["spec"]["languages"] = json!(["pytorch", "cuda_cpp"])).contains("not both"));
        assert!(message(|value| value["sources"][0]["path"] = json!("../kernel.py")).contains("inside the solution"));
        assert!(message(|value| value["sources"][0]["path"] = json!("/kernel.py")).contains("inside the solution"));
        assert!(message(|value| value["spec"]["entry_point"] = json!("kernel.py")).contains("file::function"));
        assert!(message(|value| value["spec"]["entry_point"] = json!("other.py::run")).contains("not among"));
        assert!(message(|value| value["sources"] = json!([])).contains("not among"));
        assert!(message(|value| drop(value["spec"].take())).contains("Spec"));
    }

    #[test]
    fn device_code_is_known_beforehand() {
        let cuda = |value: &mut Value| {
            value["spec"]["languages"] = json!(["cuda_cpp"]);
            value["spec"]["entry_point"] = json!("kernel.cu::run");
            value["sources"][0]["path"] = json!("kernel.cu");
        };
        let solution = Solution::parse(&text(cuda)).expect("it is a solution");
        assert_eq!(solution.needs_gpu().as_deref(), Some("kernel.cu is device code, which needs a GPU"));
        assert_eq!(solution.units(), [Path::new("kernel.cu")]);
    }
}
