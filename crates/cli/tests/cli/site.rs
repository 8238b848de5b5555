//! `serve`, `submit` and `site build` as a user meets them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::files::{Folder, report};

fn records() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../records")
}

/// A bundle that is committed; the last by name, so that tests of single bundles meet different ones.
fn a_bundle() -> PathBuf {
    let runs = std::fs::read_dir(records().join("runs")).expect("runs are committed");
    runs.map(|entry| entry.expect("readable").path()).max().expect("there is one")
}

/// Records without a run.
fn empty_records(folder: &Folder) {
    for part in ["operations", "suites"] {
        std::fs::create_dir_all(folder.path("records").join(part)).expect("writable");
        for entry in std::fs::read_dir(records().join(part)).expect("readable") {
            let path = entry.expect("readable").path();
            let to = folder.path("records").join(part).join(path.file_name().expect("it has a name"));
            std::fs::copy(&path, to).expect("writable");
        }
    }
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let arguments = ["serve", "--listen", "127.0.0.1:0", "--db", "index.sqlite", "--submissions"];
        let mut command = folder.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints its address");
        Self { child, address: line.trim().to_owned() }
    }

    /// Status line, headers and body.
    fn get(&self, path: &str) -> String {
        let host = self.address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(host).expect("it listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[cfg(unix)]
    fn interrupt(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already where the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token(folder: &Folder) -> String {
    folder.succeed(&["index", "token", "new", "someone", "--db", "index.sqlite"]).trim().to_owned()
}

#[cfg(unix)]
#[test]
fn a_run_is_sent_and_seen_and_ctrl_c_ends_the_server_in_order() {
    let folder = Folder::new();
    empty_records(&folder);
    let token = token(&folder);
    let server = Server::start(&folder);
    assert!(server.get("/").starts_with("HTTP/1.1 200"));
    let bundle = a_bundle().display().to_string();
    let submit = |token: &str| folder.run(&["submit", &bundle, "--to", &server.address, "--token", token]);
    let stored = submit(&token);
    assert_eq!(stored.status.code(), Some(0), "{}", report(&stored));
    let said = String::from_utf8_lossy(&stored.stdout).into_owned();
    let path = said.split([':', ',']).find_map(|part| part.find("/runs/").map(|at| part[at..].to_owned()));
    let page = server.get(&path.unwrap_or_else(|| panic!("{said} names no page")));
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("submitted by someone"), "{said}");
    assert!(String::from_utf8_lossy(&submit(&token).stdout).contains("known already"));
    let wrong = submit(&format!("kernelproof_{}", "0".repeat(64)));
    assert_eq!(wrong.status.code(), Some(3), "{}", report(&wrong));
    assert!(!String::from_utf8_lossy(&wrong.stderr).contains("0000"), "a token is not repeated");
    assert_eq!(server.interrupt(), Some(0));
}

#[test]
fn a_server_killed_while_it_stores_has_all_or_nothing() {
    let folder = Folder::new();
    empty_records(&folder);
    let token = token(&folder);
    let bundle = a_bundle().display().to_string();
    for delay_ms in [0, 15, 40, 80] {
        let mut server = Server::start(&folder);
        let mut command = folder.command(&["submit", &bundle, "--to", &server.address, "--token", &token]);
        let mut submit = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary starts");
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        server.child.kill().expect("it runs");
        submit.wait().expect("it ends");
        let check = folder.run(&["index", "check", "--db", "index.sqlite"]);
        assert_eq!(check.status.code(), Some(0), "after {delay_ms} ms: {}", report(&check));
    }
}

#[test]
fn the_export_is_whole_and_overwrites_nothing() {
    let folder = Folder::new();
    empty_records(&folder);
    folder.succeed(&["site", "build", "public", "--db", "index.sqlite"]);
    for file in ["index.html", "operations/qkv-rope-backward.html", "operations/qkv-rope-backward.json", "openapi.json"]
    {
        assert!(folder.path("public").join(file).is_file(), "{file}");
    }
    let again = folder.run(&["site", "build", "public", "--db", "index.sqlite"]);
    assert_eq!(again.status.code(), Some(2), "{}", report(&again));
    assert_eq!(folder.names().iter().filter(|name| name.starts_with(".kernelproof-site")).count(), 0);
}
