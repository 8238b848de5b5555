//! A folder of records made for one test, and a store beside it.

use std::fs;
use std::path::{Path, PathBuf};

use kernelproof_index::bundle::write;
use kernelproof_index::catalog::Catalog;
use kernelproof_index::correction::{Action, Correction};
use kernelproof_index::import::{ImportError, Mode, Records, Report, import};
use kernelproof_index::testing::generate::{Recipe, bundle};
use kernelproof_index::{Bundle, Digest, Manifest, Store};

/// A temporary folder with `records/` and `index.sqlite`.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// With the committed operation and suite, and no runs.
    pub(crate) fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        for name in ["operations", "suites"] {
            let to = place.records_path().join(name);
            fs::create_dir_all(&to).expect("it is writable");
            let file = Path::new("qkv-rope-backward.json");
            fs::copy(committed().join(name).join(file), to.join(file)).expect("it is committed");
        }
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn records_path(&self) -> PathBuf {
        self.folder.path().join("records")
    }

    pub(crate) fn records(&self) -> Records {
        Records::at(&self.records_path()).expect("they are records")
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.folder.path().join("index.sqlite")).expect("it opens")
    }

    /// Writes a bundle into the records.
    pub(crate) fn add(&self, recipe: &Recipe) -> Digest {
        self.add_bundle(&bundle(recipe))
    }

    pub(crate) fn add_bundle(&self, bundle: &Bundle) -> Digest {
        write(bundle, &self.records_path().join("runs")).expect("it is writable");
        bundle.run.digest().expect("it has an identity")
    }

    /// Writes a correction into the records.
    pub(crate) fn correct(&self, target: Digest, action: Action, reason: &str) -> Digest {
        let decided = "2026-02-01T00:00:00Z".to_owned();
        let correction = Manifest::new(Correction { target, action, reason: reason.to_owned(), decided });
        let digest = correction.digest().expect("it is plain data");
        self.write(&format!("corrections/{}.json", digest.short()), &correction.text().expect("it is JSON"));
        digest
    }

    /// Writes a text into the records.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.records_path().join(name);
        fs::create_dir_all(path.parent().expect("it is in a folder")).expect("it is writable");
        fs::write(path, text).expect("it is writable");
    }

    pub(crate) fn try_import(&self, mode: Mode) -> Result<Report, ImportError> {
        import(&self.store(), &self.records(), mode, &mut |_, _| {})
    }

    pub(crate) fn import(&self) -> Report {
        self.try_import(Mode::Add).unwrap_or_else(|error| panic!("{error}: {error:?}"))
    }

    /// The catalog of what is imported.
    pub(crate) fn catalog(&self) -> Catalog {
        self.store().catalog().expect("it is readable")
    }

    /// Everything that was wrong with an import.
    pub(crate) fn problems(&self) -> Vec<String> {
        match self.try_import(Mode::Add).expect_err("something is wrong") {
            ImportError::Refused { problems } => problems,
            other => panic!("{other}"),
        }
    }
}

/// The records of this repository.
pub(crate) fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records")
}

/// A run of an implementation on a day of January 2026.
pub(crate) fn recipe(name: &str, day: u32, scale_ns: f64) -> Recipe {
    Recipe {
        name: name.to_owned(),
        observed: format!("2026-01-{day:02}T00:00:00Z"),
        scale_ns,
        seed: u64::from(day),
        ..Recipe::default()
    }
}

/// Asserts that one of the texts contains another.
#[track_caller]
pub(crate) fn assert_finds(texts: &[String], expected: &str) {
    assert!(texts.iter().any(|text| text.contains(expected)), "{expected:?} is not in {texts:#?}");
}
