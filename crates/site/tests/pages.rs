//! Every page of the example catalog, asked in-process.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use kernelproof_index::catalog::Catalog;
use kernelproof_site::Site;
use tower::ServiceExt as _;

fn site() -> Arc<Site> {
    let (catalog, documents) = Catalog::example_with_documents();
    Arc::new(Site::new(Arc::new(catalog), Arc::new(documents)))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

async fn get(site: &Arc<Site>, path: &str) -> (StatusCode, String) {
    let request = Request::get(path).body(Body::empty()).expect("an address");
    let response = site.clone().service().oneshot(request).await.expect("never fails");
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Follows all links from the first page; a broken one is an error.
#[test]
fn every_link_has_an_answer() {
    let mut files = Vec::new();
    let exported = block_on(kernelproof_site::export::export(&site(), |path, text| {
        files.push((path.to_owned(), text.to_vec()));
        Ok(())
    }));
    let exported = exported.expect("no link is broken");
    assert!(exported.files > 30, "{exported:?}");
    if let Ok(folder) = std::env::var("KERNELPROOF_EXPORT") {
        for (path, text) in &files {
            let path = std::path::Path::new(&folder).join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
    }
}
