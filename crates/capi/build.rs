//! Names the shared library for the dynamic linker: programs look for the major version that they were linked with.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    match system.as_str() {
        "macos" => println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/libqkv_rope.0.dylib"),
        "windows" => {}
        _ => println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libqkv_rope.so.0"),
    }
}
