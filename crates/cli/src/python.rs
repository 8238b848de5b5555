//! Python processes: starting one, asking it, timing its answers, and never waiting for it without a limit.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// What every worker imports.
const COMMON: (&str, &str) = ("kernelproof_worker.py", include_str!("../python/kernelproof_worker.py"));

/// Tried in this order when no interpreter is named.
const INTERPRETERS: [&str; 2] = ["python3", "python"];

/// Importing PyTorch from a cold disk takes tens of seconds.
pub(crate) const HELLO_LIMIT: Duration = Duration::from_secs(180);

/// How long a worker may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(3);

/// A program for a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    /// Begins each error message: `pytorch`.
    pub(crate) label: &'static str,
    /// Name of the file.
    pub(crate) file: &'static str,
    pub(crate) text: &'static str,
    /// Modules that it imports besides [`COMMON`], by file name.
    pub(crate) modules: &'static [(&'static str, &'static str)],
    /// Variables of its environment.
    pub(crate) environment: &'static [(&'static str, &'static str)],
}

/// Why an answer did not come, or was none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerError {
    /// The process has ended.
    #[error("{0}")]
    Ended(String),
    /// It was silent for too long and was ended.
    #[error("{0}")]
    Silent(String),
    /// It cannot import PyTorch; what to do about it.
    #[error("{message}")]
    NoTorch { message: String, help: String },
    /// It says that something went wrong, of a kind where it knows one.
    #[error("{label}: {text}")]
    Said { label: &'static str, kind: Option<String>, text: String },
    /// It said what nobody understands, or without being asked.
    #[error("{0}")]
    Nonsense(String),
}

impl From<WorkerError> for Failure {
    fn from(error: WorkerError) -> Self {
        let failure = Self::unavailable(error.to_string());
        match error {
            WorkerError::NoTorch { help, .. } => failure.help(help),
            _ => failure,
        }
    }
}

/// A line and when it arrived.
#[derive(Debug)]
struct Line {
    text: String,
    at: Instant,
}

/// A Python process that answers requests, one JSON object a line. It leads a process group of its own, so that what it
/// started is stopped and ended with it.
#[derive(Debug)]
pub(crate) struct Worker {
    label: &'static str,
    child: Child,
    requests: Option<ChildStdin>,
    answers: Receiver<Line>,
    interpreter: OsString,
    log: PathBuf,
}

impl Worker {
    /// Starts an interpreter, the one named or the first one found. Its script and its stderr are kept in `folder`. Call
    /// it from a thread that lives as long as the worker, which ends with it.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn start(script: Script, python: Option<&Path>, threads: usize, folder: &Path) -> anyhow::Result<Self> {
        let own = [COMMON, (script.file, script.text)];
        for &(file, text) in own.iter().chain(script.modules) {
            let path = folder.join(file);
            std::fs::write(&path, text).with_context(|| format!("{}: cannot be written", path.display()))?;
        }
        let candidates: Vec<OsString> = match python {
            Some(path) => vec![path.into()],
            None => INTERPRETERS.map(OsString::from).to_vec(),
        };
        for interpreter in &candidates {
            match Self::spawn(script, interpreter, threads, folder) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                started => return started.with_context(|| format!("{} cannot be started", interpreter.display())),
            }
        }
        let tried: Vec<String> = candidates.iter().map(|candidate| candidate.display().to_string()).collect();
        let failure = Failure::unavailable(format!("{}: found no Python; tried {}", script.label, tried.join(", ")));
        Err(failure
            .help("install Python 3 and PyTorch (python3 -m pip install torch), or name it with --python")
            .into())
    }

    fn spawn(script: Script, interpreter: &OsString, threads: usize, folder: &Path) -> std::io::Result<Self> {
        let log = folder.join("stderr.txt");
        let mut command = Command::new(interpreter);
        command
            .arg("-u")
            .arg(folder.join(script.file))
            .env("OMP_NUM_THREADS", threads.to_string())
            .env("MKL_NUM_THREADS", threads.to_string())
            .envs(script.environment.iter().copied())
            .env_remove("PYTHONSAFEPATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log)?);
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let requests = child.stdin.take();
        let (sender, answers) = channel();
        if let Some(stdout) = child.stdout.take() {
            // Ends with the process, whose stdout then closes.
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
                lines.try_for_each(|text| sender.send(Line { text, at: Instant::now() }))
            });
        }
        Ok(Self { label: script.label, child, requests, answers, interpreter: interpreter.clone(), log })
    }

    /// Sends a request and waits for its answer, at most `limit`.
    ///
    /// # Errors
    /// When the worker says so, ends, or is silent for too long; it is then ended.
    pub(crate) fn ask<Answer: DeserializeOwned>(
        &mut self,
        request: &Value,
        limit: Duration,
    ) -> Result<Answer, WorkerError> {
        self.ask_timed(request, limit, |_| {}).map(|(answer, _)| answer)
    }

    /// As [`Worker::ask`], with the time in ns from before `start`, which is called when the request lies ready, to when
    /// the answer arrived.
    ///
    /// # Errors
    /// As [`Worker::ask`].
    pub(crate) fn ask_timed<Answer: DeserializeOwned>(
        &mut self,
        request: &Value,
        limit: Duration,
        start: impl FnOnce(&Self),
    ) -> Result<(Answer, u64), WorkerError> {
        if let Ok(line) = self.answers.try_recv() {
            return Err(WorkerError::Nonsense(format!("{}: found answer {:?} to no question", self.label, line.text)));
        }
        let text = format!("{request}\n");
        let sent = self.requests.as_mut().map(|requests| requests.write_all(text.as_bytes()));
        if !matches!(sent, Some(Ok(()))) {
            return Err(self.ended());
        }
        let asked = Instant::now();
        start(self);
        let line = match self.answers.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                let limit = limit.as_secs_f64();
                let message = format!("{}: no answer within {limit} s; the process was ended", self.label);
                return Err(WorkerError::Silent(message));
            }
        };
        let time_ns = u64::try_from(line.at.saturating_duration_since(asked).as_nanos()).unwrap_or(u64::MAX);
        Ok((self.understand(&line.text)?, time_ns))
    }

    fn understand<Answer: DeserializeOwned>(&self, line: &str) -> Result<Answer, WorkerError> {
        let label = self.label;
        let nonsense = || WorkerError::Nonsense(format!("{label}: found answer {line:?}, expected what was asked for"));
        let answer: Value = serde_json::from_str(line).map_err(|_| nonsense())?;
        match answer.get("error").and_then(Value::as_str) {
            Some("no torch") => Err(self.no_torch(&answer)),
            Some(error) => {
                let kind = answer.get("kind").and_then(Value::as_str).map(str::to_owned);
                Err(WorkerError::Said { label, kind, text: error.to_owned() })
            }
            None => serde_json::from_value(answer).map_err(|_| nonsense()),
        }
    }

    fn no_torch(&self, answer: &Value) -> WorkerError {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or("unknown").to_owned();
        let (label, interpreter) = (self.label, self.interpreter.display());
        let message =
            format!("{label}: {interpreter} (Python {}) cannot import torch: {}", text("python"), text("detail"));
        let help =
            format!("install it with `{interpreter} -m pip install torch`, or name another Python with --python");
        WorkerError::NoTorch { message, help }
    }

    /// Why the process is gone: its exit status and the end of what it wrote to stderr.
    fn ended(&mut self) -> WorkerError {
        let status = self.wait(FAREWELL);
        self.kill();
        let status = status.map_or_else(|| "unknown status".to_owned(), |status| status.to_string());
        let said = self.last_words();
        let said = if said.is_empty() { String::new() } else { format!("; it said:\n    {said}") };
        WorkerError::Ended(format!("{}: {} ended early ({status}){said}", self.label, self.interpreter.display()))
    }

    /// The end of what it wrote to stderr.
    fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n    ")
    }

    /// Stops the process and all that it started, until [`Worker::thaw`].
    #[cfg(unix)]
    pub(crate) fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets it go on.
    #[cfg(unix)]
    pub(crate) fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Signals the group. The child has not been waited for, so its number is still its own.
    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let group = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        // An error means that it has ended already.
        let _ = group.map(|group| rustix::process::kill_process_group(group, signal));
    }

    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// Ends the process and all that it started, at once.
    pub(crate) fn kill(&mut self) {
        #[cfg(unix)]
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(rustix::process::Signal::KILL);
        }
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

    const SCRIPT: Script = Script { label: "pytorch", file: "script.py", text: "", modules: &[], environment: &[] };

    /// A worker that is a shell script, which gets the name of the Python script as its argument.
    fn worker(folder: &Path, script: &str) -> Worker {
        let path = folder.join("python");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the folder is writable");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
        Worker::start(SCRIPT, Some(&path), 1, folder).expect("a shell is there")
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
