//! The Python process: starting it, asking it, and never waiting for it without a limit.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

const SCRIPT: &str = include_str!("../../../python/pytorch_worker.py");

/// Tried in this order when no interpreter is named.
const INTERPRETERS: [&str; 2] = ["python3", "python"];

/// How long a worker may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(3);

/// A Python process that answers requests, one JSON object a line.
#[derive(Debug)]
pub(super) struct Worker {
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    interpreter: OsString,
    log: PathBuf,
}

impl Worker {
    /// Starts an interpreter, the one named or the first one found. Its script and its stderr are kept in `folder`.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start(python: Option<&Path>, threads: usize, folder: &Path) -> anyhow::Result<Self> {
        let script = folder.join("pytorch_worker.py");
        std::fs::write(&script, SCRIPT).with_context(|| format!("{}: cannot be written", script.display()))?;
        let candidates: Vec<OsString> = match python {
            Some(path) => vec![path.into()],
            None => INTERPRETERS.map(OsString::from).to_vec(),
        };
        for interpreter in &candidates {
            match Self::spawn(interpreter, &script, threads, folder) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                started => return started.with_context(|| format!("{} cannot be started", interpreter.display())),
            }
        }
        let tried: Vec<String> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
        let failure = Failure::unavailable(format!("pytorch: found no Python; tried {}", tried.join(", ")));
        Err(failure
            .help("install Python 3 and PyTorch (python3 -m pip install torch), or name it with --python")
            .into())
    }

    fn spawn(interpreter: &OsString, script: &Path, threads: usize, folder: &Path) -> std::io::Result<Self> {
        let log = folder.join("stderr.txt");
        let mut child = Command::new(interpreter)
            .arg("-u")
            .arg(script)
            .env("OMP_NUM_THREADS", threads.to_string())
            .env("MKL_NUM_THREADS", threads.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?)
            .spawn()?;
        let requests = child.stdin.take();
        let (sender, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the process, whose stdout then closes.
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
                lines.try_for_each(|line| sender.send(line))
            });
        }
        Ok(Self { child, requests, answers, interpreter: interpreter.clone(), log })
    }

    /// Sends a request and waits for its answer, at most `limit`.
    ///
    /// # Errors
    /// When the worker says so, ends, or is silent for too long; it is then ended.
    pub(super) fn ask<Answer: DeserializeOwned>(&mut self, request: &Value, limit: Duration) -> anyhow::Result<Answer> {
        let sent = self.requests.as_mut().map(|requests| writeln!(requests, "{request}"));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.ended().into());
        }
        let line = match self.answers.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended().into()),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                let message = format!("pytorch: no answer within {} s; the process was ended", limit.as_secs_f64());
                return Err(Failure::unavailable(message).into());
            }
        };
        let nonsense = || Failure::unavailable(format!("pytorch: found answer {line:?}, expected what was asked for"));
        let answer: Value = serde_json::from_str(&line).map_err(|_| nonsense())?;
        match answer.get("error").and_then(Value::as_str) {
            Some("no torch") => Err(self.no_torch(&answer).into()),
            Some(error) => Err(Failure::unavailable(format!("pytorch: {error}")).into()),
            None => Ok(serde_json::from_value(answer).map_err(|_| nonsense())?),
        }
    }

    fn no_torch(&self, answer: &Value) -> Failure {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let interpreter = self.interpreter.display();
        let message =
            format!("pytorch: {interpreter} (Python {}) cannot import torch: {}", text("python"), text("detail"));
        Failure::unavailable(message)
            .help(format!("install it with `{interpreter} -m pip install torch`, or name another Python with --python"))
    }

    /// Why the process is gone: its exit status and the end of what it wrote to stderr.
    fn ended(&mut self) -> Failure {
        let status = self.wait(FAREWELL);
        self.kill();
        let status = status.map_or_else(|| "unknown status".to_owned(), |status| status.to_string());
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join("\n    ");
        let said = if said.is_empty() { String::new() } else { format!("; it said:\n    {said}") };
        Failure::unavailable(format!("pytorch: {} ended early ({status}){said}", self.interpreter.display()))
    }

    fn wait(&mut self, limit: Duration) -> Option<std::process::ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    fn kill(&mut self) {
        // An error means that it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.requests = None;
        if self.wait(FAREWELL).is_none() {
            self.kill();
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A worker that is a shell script, which gets the name of the Python script as its argument.
    fn worker(folder: &Path, script: &str) -> Worker {
        let path = folder.join("python");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the folder is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
        Worker::start(Some(&path), 1, folder).expect("a shell is there")
    }

    #[test]
    fn a_worker_that_hangs_is_ended() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut worker = worker(folder.path(), "exec sleep 1000");
        let answer = worker.ask::<Value>(&serde_json::json!({"do": "hello"}), Duration::from_millis(100));
        let error = answer.expect_err("it never answers").to_string();
        assert_eq!(error, "pytorch: no answer within 0.1 s; the process was ended");
        assert!(worker.child.try_wait().expect("it is our child").is_some(), "it has ended");
    }

    #[test]
    fn a_worker_gets_threads_and_requests() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut worker =
            worker(folder.path(), r#"read line; echo "{\"threads\": $OMP_NUM_THREADS, \"asked\": $line}""#);
        let answer: Value = worker.ask(&serde_json::json!({"do": "hello"}), HELLO).expect("it answers");
        assert_eq!(answer, serde_json::json!({"threads": 1, "asked": {"do": "hello"}}));
    }

    const HELLO: Duration = Duration::from_secs(20);
}
