//! The C examples, compiled with every warning an error against an installed copy, and run.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What the command printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        said(&output.stdout),
        said(&output.stderr)
    );
    said(&output.stdout)
}

/// Installs what cargo built for this test.
fn install(prefix: &Path) {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.parent().expect("the folder of built files");
    run(Command::new(crate_folder().join("install.sh")).arg(prefix).arg(built));
}

fn compile(example: &str, prefix: &Path, flags: &[&str], libraries: &[&str], program: &Path) {
    let mut command = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(["-Wall", "-Wextra", "-Werror", "-O1"]).args(flags);
    command.arg(crate_folder().join("../../examples/c").join(example));
    command.arg("-I").arg(prefix.join("include")).arg("-o").arg(program);
    run(command.arg("-L").arg(prefix.join("lib")).args(libraries));
}

#[test]
fn the_example_runs_with_the_shared_library() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    install(folder.path());
    let program = folder.path().join("shared");
    compile("backward.c", folder.path(), &["-std=c99", "-pedantic"], &["-lqkv_rope", "-lm"], &program);
    // Only the name that the soname promises may be needed at run time.
    std::fs::remove_file(folder.path().join("lib/libqkv_rope.so")).expect("the link for the linker");
    std::fs::remove_file(folder.path().join("lib/libqkv_rope.a")).expect("the static library");
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", folder.path().join("lib")));
    assert!(said.contains("refused as it should be: q_weight: found shape [25, 24], expected [24, 24]"), "{said}");
    assert!(said.contains("all outputs exact"), "{said}");
}

#[test]
fn the_example_runs_with_the_static_library() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    install(folder.path());
    let program = folder.path().join("static");
    let libraries = ["-l:libqkv_rope.a", "-lpthread", "-ldl", "-lm"];
    compile("backward.c", folder.path(), &["-std=c99"], &libraries, &program);
    assert!(run(&mut Command::new(program)).contains("all outputs exact"));
}

#[test]
fn the_gpu_example_says_when_no_gpu_is_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    install(folder.path());
    let program = folder.path().join("cuda");
    compile("backward_cuda.c", folder.path(), &["-std=c99", "-pedantic"], &["-lqkv_rope", "-ldl", "-lm"], &program);
    let said = run(Command::new(program).env("LD_LIBRARY_PATH", library_path(folder.path())));
    match qkv_rope_cuda_devices() {
        0 => assert!(said.starts_with("no GPU here: "), "{said}"),
        _ => assert!(said.contains("fast on GPU 0: all outputs exact"), "{said}"),
    }
}

/// The installed library first, then where this machine has its driver.
fn library_path(prefix: &Path) -> std::ffi::OsString {
    let mut paths = vec![prefix.join("lib")];
    paths.extend(std::env::var_os("LD_LIBRARY_PATH").iter().flat_map(std::env::split_paths));
    std::env::join_paths(paths).expect("paths without colons")
}

fn qkv_rope_cuda_devices() -> u32 {
    let mut count = 0;
    // SAFETY: points to a value on this stack.
    let status = unsafe { qkv_rope_capi::qkv_rope_cuda_device_count(&mut count) };
    if status == qkv_rope_capi::qkv_rope_status::QKV_ROPE_OK { count } else { 0 }
}

#[test]
fn the_header_is_cpp_too() {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let header = crate_folder().join("include/qkv_rope.h");
    let mut command = Command::new(compiler);
    run(command.args(["-x", "c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only"]).arg(header));
}

#[test]
fn the_package_config_names_the_prefix() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    install(folder.path());
    let text = std::fs::read_to_string(folder.path().join("lib/pkgconfig/qkv_rope.pc")).expect("a .pc file");
    assert!(text.contains(&format!("Version: {}\n", env!("CARGO_PKG_VERSION"))), "{text}");
    assert!(!text.contains('@'), "{text}");
}
