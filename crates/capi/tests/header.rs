//! The committed header is what the sources say.

#[test]
fn the_header_is_current() {
    let folder = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{folder}/cbindgen.toml")).expect("a readable configuration");
    let made = cbindgen::Builder::new()
        .with_config(config)
        .with_src(format!("{folder}/src/lib.rs"))
        .generate()
        .expect("sources that cbindgen reads");
    let path = format!("{folder}/include/qkv_rope.h");
    if std::env::var_os("UPDATE_HEADER").is_some() {
        made.write_to_file(&path);
    }
    let mut text = Vec::new();
    made.write(&mut text);
    let committed = std::fs::read(&path).unwrap_or_default();
    assert!(text == committed, "{path} is old: UPDATE_HEADER=1 cargo test -p qkv-rope-capi");
}
