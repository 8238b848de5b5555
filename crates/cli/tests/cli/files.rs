//! Safetensors files made by hand, so that they can be wrong, and a folder to run the binary in.

use std::path::PathBuf;
use std::process::{Command, Output};

use qkv_rope_op::{Dims, OwnedInputs, Recipe, Tensor};

/// An empty folder that the binary runs in; paths in messages are then the same everywhere.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("the temporary folder is writable");
    }

    /// Names of all files, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("the temporary folder is readable");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The binary to be run here, without what the environment of the tests says. Its temporary files are here too, so
    /// that tests which measure do not lock each other out.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("kernelproof"));
        command
            .current_dir(self.0.path())
            .env("TMPDIR", self.0.path())
            .env("KERNELPROOF_STATE", self.0.path().join("state"))
            .env_remove("KERNELPROOF_PYTHON")
            .args(arguments);
        command
    }

    /// Runs the binary here.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the binary starts")
    }

    /// As [`Folder::run`], which must succeed; returns stdout.
    pub(crate) fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", report(&output));
        String::from_utf8(output.stdout).expect("output is UTF-8")
    }
}

/// Exit code and stderr, for snapshots and failed assertions.
pub(crate) fn report(output: &Output) -> String {
    let code = output.status.code().map_or_else(|| "killed".to_owned(), |code| code.to_string());
    format!("exit code {code}\n{}", String::from_utf8_lossy(&output.stderr).trim_end())
}

/// A small problem in which every size is different.
pub(crate) fn small_dims() -> Dims {
    Dims::new(2, 5, 24, 4, 3, 8).and_then(|dims| dims.with_rotary_dim(6)).expect("the sizes are valid")
}

/// Seeded inputs of [`small_dims`].
pub(crate) fn small_inputs() -> OwnedInputs {
    OwnedInputs::generate(small_dims(), Recipe::Benchmark, 7)
}

/// A file under construction: entries of the header as JSON, and the data after it.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) entries: Vec<(String, serde_json::Value)>,
    pub(crate) data: Vec<u8>,
    /// Spaces after the header.
    pub(crate) padding: usize,
}

impl Draft {
    /// A correct file of `inputs`.
    pub(crate) fn of(inputs: &OwnedInputs) -> Self {
        let mut draft = Self { entries: Vec::new(), data: Vec::new(), padding: 0 };
        for tensor in Tensor::INPUTS {
            draft.add(tensor.name(), &inputs.dims().shape(tensor), inputs.tensor(tensor).expect("all are generated"));
        }
        draft
    }

    /// A correct file of small inputs.
    pub(crate) fn small() -> Self {
        Self::of(&small_inputs())
    }

    /// Adds an f32 tensor at the end.
    pub(crate) fn add(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        let start = self.data.len();
        self.data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let info = serde_json::json!({"dtype": "F32", "shape": shape, "data_offsets": [start, self.data.len()]});
        self.entries.push((name.to_owned(), info));
    }

    /// The header entry of a tensor.
    pub(crate) fn entry(&mut self, name: &str) -> &mut serde_json::Value {
        let found = self.entries.iter_mut().find(|(entry, _)| entry == name);
        &mut found.expect("the draft has this tensor").1
    }

    /// The file with its header text replaced.
    pub(crate) fn with_header(&self, header: &[u8]) -> Vec<u8> {
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header);
        file.extend(&self.data);
        file
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let entries: Vec<String> =
            self.entries.iter().map(|(name, info)| format!("{}:{info}", serde_json::json!(name))).collect();
        let header = format!("{{{}}}{}", entries.join(","), " ".repeat(self.padding));
        self.with_header(header.as_bytes())
    }
}
