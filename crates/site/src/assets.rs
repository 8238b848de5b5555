//! The files that pages need. Their addresses carry a digest of their contents, so a browser may keep them for ever.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

/// A file that is part of the program.
#[derive(Debug)]
pub struct Asset {
    /// Its address.
    pub path: String,
    /// Its media type.
    pub media_type: &'static str,
    /// What it holds.
    pub text: &'static str,
}

static CSS: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("site", "css", "text/css; charset=utf-8", include_str!("../assets/site.css")));
static JS: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("site", "js", "text/javascript; charset=utf-8", include_str!("../assets/site.js")));
static ICON: LazyLock<Asset> = LazyLock::new(|| Asset {
    path: "/assets/icon.svg".to_owned(),
    media_type: "image/svg+xml",
    text: include_str!("../assets/icon.svg"),
});

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, text: &'static str) -> Self {
        let digest = Sha256::digest(text.as_bytes());
        let digits: String = digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        Self { path: format!("/assets/{name}-{digits}.{extension}"), media_type, text }
    }

    /// Whether its address changes with its contents.
    pub fn is_named_by_digest(&self) -> bool {
        self.path.contains("/site-")
    }

    /// The asset at an address.
    pub fn find(path: &str) -> Option<&'static Self> {
        [&*CSS, &*JS, &*ICON].into_iter().find(|asset| asset.path == path)
    }
}

/// Address of the style sheet.
pub fn css() -> &'static str {
    &CSS.path
}

/// Address of the script.
pub fn js() -> &'static str {
    &JS.path
}
