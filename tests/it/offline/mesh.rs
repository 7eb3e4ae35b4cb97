//! Mesh nodes over HTTP, as real processes on 127.0.0.1, observed from outside.
//!
//! `table.rs`: the forwarding table (2.7.1); `line.rs`: three nodes in a row; `http.rs`: the binding; `keys.rs`: signatures, encryption and
//! permissions; `hostile.rs`: attacks. No Docker daemon is needed.

mod hostile;
mod http;
mod keys;
mod line;
mod table;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_longshore");
/// A handler that answers with the received frame.
const ECHO: &str = "printf '{\"got\":%s}' \"$(cat)\"";
/// Roles of the first and the second node.
const FIRST: &str = "amp://example.org/first";
const SECOND: &str = "amp://example.org/second";

fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    command.env_clear().env("PATH", std::env::var_os("PATH").expect("a PATH")).current_dir("/");
    command
}

/// A running node.
struct Node {
    child: Child,
    url: String,
    address: String,
}

impl Node {
    fn start(args: &[&str]) -> Self {
        let mut child = program()
            .args(["mesh", "serve", "--listen", "127.0.0.1:0", "--json"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let output: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it listens: {line:?} {args:?}"));
        let text = |key: &str| output[key].as_str().expect("a text").to_owned();
        Self { child, url: text("url"), address: text("listening") }
    }

    /// An ultimate receiver.
    fn last(args: &[&str]) -> Self {
        Self::start(&[&["--uri", "agent://last"], args].concat())
    }

    /// A forwarding intermediary.
    fn forwarding(next: &Self, args: &[&str]) -> Self {
        Self::start(&[&["--uri", "agent://first", "--role", FIRST, "--forward", &next.url], args].concat())
    }

    /// An active intermediary.
    fn active(next: &Self, args: &[&str]) -> Self {
        let own = ["--uri", "agent://second", "--role", SECOND, "--active", "--forward", &next.url];
        Self::start(&[&own, args].concat())
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a pid"), signal).expect("it is there");
    }

    /// Sends the content of a frame with these flags.
    fn send(&self, frame: &Value, args: &[&str]) -> SendOutput {
        send(&self.url, &json!({"frame": frame}).to_string(), args)
    }

    /// Sends bytes over a new connection and reads the whole response.
    fn raw(&self, request: &[u8]) -> HttpResponse {
        let mut stream = self.connect();
        // The server may refuse and close before everything is written.
        let _ = stream.write_all(request);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        HttpResponse::of(&String::from_utf8_lossy(&text))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        stream
    }

    /// Posts a body with these header lines and those that HTTP requires.
    fn post(&self, path: &str, lines: &[&str], body: &[u8]) -> HttpResponse {
        let mut head = format!("POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !lines.iter().any(|line| line.starts_with("Host:")) {
            head.push_str(&format!("Host: {}\r\n", self.address));
        }
        head.extend(lines.iter().map(|line| format!("{line}\r\n")));
        head.push_str("\r\n");
        self.raw(&[head.as_bytes(), body].concat())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Output of `mesh send`.
struct SendOutput {
    code: Option<i32>,
    /// Standard output as JSON, or null.
    frame: Value,
    err: String,
}

impl SendOutput {
    /// A value in the frame.
    fn at(&self, pointer: &str) -> &Value {
        self.frame.pointer(&format!("/frame{pointer}")).unwrap_or(&Value::Null)
    }

    /// The frame that reached the last node, which runs [`ECHO`].
    fn received_frame(&self) -> &Value {
        assert_eq!(self.code, Some(0), "{} {}", self.err, self.frame);
        self.at("/Body/got/frame")
    }

    /// Code, subcode and node of the fault in the answer.
    fn fault(&self) -> (&str, &str, &str) {
        assert_eq!(self.code, Some(1), "a fault must come back: {} {}", self.err, self.frame);
        let text = |pointer: &str| self.at(pointer).as_str().unwrap_or_default();
        (text("/Body/fault/code/value"), text("/Body/fault/code/subcode"), text("/Body/fault/node"))
    }
}

/// Starts `mesh send` with a piped input.
fn spawn_send(url: &str, how: &[&str], args: &[&str]) -> Child {
    program()
        .args(["mesh", "send", "-", "--to", url])
        .args(how)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn send(url: &str, input: &str, args: &[&str]) -> SendOutput {
    let mut child = spawn_send(url, &["--json"], args);
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it ends");
    let out = String::from_utf8_lossy(&output.stdout);
    SendOutput {
        code: output.status.code(),
        frame: serde_json::from_str(&out).unwrap_or(Value::Null),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A parsed HTTP response.
struct HttpResponse {
    status: u16,
    head: String,
    body: Value,
    text: String,
}

impl HttpResponse {
    fn of(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let json = serde_json::from_str(body).unwrap_or(Value::Null);
        Self { status, head: head.to_ascii_lowercase(), body: json, text: body.to_owned() }
    }

    fn subcode(&self) -> &str {
        self.body.pointer("/frame/Body/fault/code/subcode").and_then(Value::as_str).unwrap_or_default()
    }
}

/// A running `mesh send --stream`.
struct StreamSender {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
}

impl StreamSender {
    fn open(url: &str, args: &[&str]) -> Self {
        let mut child = spawn_send(url, &["--stream"], args);
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, input, output }
    }

    fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(line.as_bytes()).and_then(|()| input.write_all(b"\n")).expect("it reads");
        input.flush().expect("it reads");
    }

    fn read_answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or(Value::Null)
    }

    fn end(&mut self) -> Option<i32> {
        self.input = None;
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for StreamSender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition, or panics.
fn wait_until(what: &str, limit: Duration, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
