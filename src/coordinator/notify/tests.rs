//! Commands that succeed, fail and hang; servers with different responses; each notification is sent once.

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::notifier::MARKERS_DIR;
use super::*;
use crate::coordinator::EscalationListener;
use crate::protocol::amp::message::AmpMessage;
use crate::protocol::amp::store::Ssot;
use crate::state::SwarmDir;

const FAST_POLICY: NotifyPolicy = NotifyPolicy {
    command_timeout: Duration::from_secs(20),
    request_timeout: Duration::from_secs(20),
    retry_delay: Duration::from_millis(5),
    retries: 3,
    close_timeout: Duration::from_secs(30),
};

fn message(number: u64) -> AmpMessage {
    let text = format!(
        r#"{{"msg_id":"escalation-T-2026-001-{}","protocol_version":"AMP/1.0","type":"escalation","from":"coordinator",
        "to":"admin","task_id":"T-2026-001","timestamp":"2026-02-26T14:32:07.{number:03}+00:00","requires_ack":false,
        "payload":{{"escalation_type":"hallucination_lock","severity":"critical","triggered_by":"coordinator",
        "description":"rejected 4 times, \"it\u001b[31m does not\nwork\"","affected_msgs":[],"system_state_snapshot":
        {{"task_status":"locked","reject_count":4,"last_successful_msg_id":null}},"auto_suspended":true}}}}"#,
        1_772_116_327_000 + number
    );
    AmpMessage::parse(&text).expect("a good message")
}

struct NotifierFixture {
    repo_dir: tempfile::TempDir,
    swarm_dir: SwarmDir,
    warnings: mpsc::UnboundedReceiver<String>,
    notifier: Box<EscalationNotifier>,
}

impl NotifierFixture {
    fn new(listeners: NotifyTargets, policy: NotifyPolicy) -> Self {
        Self::new_in(tempfile::tempdir().expect("a directory"), listeners, policy)
    }

    /// In a directory where swarms were before.
    fn new_in(repo_dir: tempfile::TempDir, listeners: NotifyTargets, policy: NotifyPolicy) -> Self {
        let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid");
        let swarm_dir = SwarmDir::create(repo_dir.path(), swarm).expect("a directory");
        let mut notify = Box::new(EscalationNotifier::new(listeners, repo_dir.path(), &swarm_dir, policy));
        let (warn, warnings) = mpsc::unbounded_channel();
        notify.set_warning_sender(warn);
        Self { repo_dir, swarm_dir, warnings, notifier: notify }
    }

    fn markers(dir: &SwarmDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path().join(MARKERS_DIR)).into_iter().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Waits for all; returns the directory, the markers and the warnings.
    async fn end(mut self) -> (tempfile::TempDir, Vec<String>, Vec<String>) {
        self.notifier.close().await;
        let mut warnings = Vec::new();
        while let Ok(warning) = self.warnings.try_recv() {
            warnings.push(warning);
        }
        (self.repo_dir, Self::markers(&self.swarm_dir), warnings)
    }
}

fn command_target(text: &str) -> NotifyTargets {
    NotifyTargets { command: Some(text.to_owned()), url: None }
}

/// A server that answers with these status lines in turn, and returns the requests.
async fn server(answers: &'static [&'static str]) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut text = String::new();
            let whole = |text: &str| {
                let (head, body) = text.split_once("\r\n\r\n")?;
                let lower = head.to_lowercase();
                let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "))?;
                (body.len() >= length.trim().parse().ok()?).then_some(())
            };
            while whole(&text).is_none() {
                let mut piece = [0; 4096];
                let count = stream.read(&mut piece).await.expect("read");
                assert!(count > 0, "cut off after {text}");
                text.push_str(std::str::from_utf8(&piece[..count]).expect("UTF-8"));
            }
            let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.expect("written");
            requests.push(text);
        }
        requests
    });
    (format!("http://{address}/hook?key=s3cret"), served)
}

fn url_target(text: &str) -> NotifyTargets {
    NotifyTargets { command: None, url: Some(NotifyUrl::parse(text).expect("a URL")) }
}

#[tokio::test]
async fn command_runs_once_per_escalation() {
    let script = "cat >>heard; printf '%s|' \"$LONGSHORE_ESCALATION_TYPE\" \"$LONGSHORE_ESCALATION_SEVERITY\" \
                  \"$LONGSHORE_ESCALATION_TASK\" \"$LONGSHORE_ESCALATION_MSG_ID\" \"$LONGSHORE_ESCALATION_DESCRIPTION\" >>vars; \
                  echo noise";
    let mut fixture = NotifierFixture::new(command_target(script), FAST_POLICY);
    fixture.notifier.on_escalation(&message(1));
    fixture.notifier.on_escalation(&message(1));
    let (dir, markers, warnings) = fixture.end().await;
    let notified = || std::fs::read_to_string(dir.path().join("heard")).expect("heard");
    assert_eq!(AmpMessage::parse(&notified()).expect("one message"), message(1));
    let vars = std::fs::read_to_string(dir.path().join("vars")).expect("vars");
    let id = "escalation-T-2026-001-1772116327001";
    let text = "rejected 4 times, \"it does not work\"";
    assert_eq!(vars, format!("hallucination_lock|critical|T-2026-001|{id}|{text}|"));
    assert_eq!((markers, warnings), (vec![format!("{id}.command")], Vec::new()));

    let before = notified();
    let mut fixture = NotifierFixture::new_in(dir, command_target(script), FAST_POLICY);
    fixture.notifier.on_escalation(&message(1));
    let (dir, ..) = fixture.end().await;
    assert_eq!(std::fs::read_to_string(dir.path().join("heard")).expect("heard"), before, "it was sent before");
}

#[tokio::test]
async fn missed_notifications_are_sent_on_resume() {
    let dir = tempfile::tempdir().expect("a directory");
    let ssot = Ssot::open(dir.path()).expect("an SSOT");
    for number in [1, 2] {
        ssot.ensure_message(&message(number)).expect("written");
    }
    let spec = crate::report::story_labels::tests::spec(1);
    let script = "echo \"$LONGSHORE_ESCALATION_MSG_ID\" >>heard; test -e well || exit 7";
    let mut fixture = NotifierFixture::new_in(dir, command_target(script), FAST_POLICY);
    fixture.notifier.notify_missed(&ssot, &spec).expect("read");
    let (dir, markers, warnings) = fixture.end().await;
    assert_eq!((markers, warnings.len()), (Vec::new(), 1), "the first failure is shown, and no other");
    assert!(warnings[0].contains("exit status: 7") && warnings[0].contains("to the command"), "{warnings:?}");

    std::fs::write(dir.path().join("well"), "").expect("written");
    let mut fixture = NotifierFixture::new_in(dir, command_target(script), FAST_POLICY);
    fixture.notifier.notify_missed(&ssot, &spec).expect("read");
    let (dir, markers, _) = fixture.end().await;
    assert_eq!(markers.len(), 2);
    let notified = || std::fs::read_to_string(dir.path().join("heard")).expect("heard").lines().count();
    assert_eq!(notified(), 4, "twice without success, twice with it");
}

#[tokio::test]
async fn hanging_command_is_killed_with_its_process_group() {
    let policy = NotifyPolicy { command_timeout: Duration::from_millis(300), ..FAST_POLICY };
    let mut fixture = NotifierFixture::new(command_target("sleep 600 & echo $! >child; wait"), policy);
    fixture.notifier.on_escalation(&message(1));
    let (dir, markers, warnings) = fixture.end().await;
    assert!(markers.is_empty() && warnings[0].contains("did not end within 0.3 s"), "{warnings:?}");
    let child = std::fs::read_to_string(dir.path().join("child")).expect("it began");
    let has_exited = |stat: std::io::Result<String>| stat.map_or(true, |stat| stat.contains(") Z "));
    let path = format!("/proc/{}/stat", child.trim());
    for _ in 0..500 {
        if has_exited(std::fs::read_to_string(&path)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} still runs", child.trim());
}

#[tokio::test]
async fn command_with_a_background_child_counts_as_notified() {
    let mut fixture = NotifierFixture::new(command_target("sleep 5 & exit 0"), FAST_POLICY);
    fixture.notifier.on_escalation(&message(1));
    let began = std::time::Instant::now();
    let (_, markers, warnings) = fixture.end().await;
    assert_eq!((markers.len(), warnings), (1, Vec::new()));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn transient_url_failure_is_retried() {
    let (address, served) = server(&["500 Oh", "503 Wait", "204 No Content"]).await;
    let with_login = address.replace("http://", "http://me:p%40ss@");
    let mut fixture = NotifierFixture::new(url_target(&with_login), FAST_POLICY);
    fixture.notifier.on_escalation(&message(1));
    let (_, markers, warnings) = fixture.end().await;
    assert_eq!((markers, warnings), (vec!["escalation-T-2026-001-1772116327001.url".to_owned()], Vec::new()));
    let requests = served.await.expect("served");
    for request in &requests {
        let (head, body) = request.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("POST /hook?key=s3cret HTTP/1.1\r\n"), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/json"), "{head}");
        // "me:p@ss"
        assert!(head.contains("Basic bWU6cEBzcw=="), "{head}");
        assert_eq!(AmpMessage::parse(body).expect("the message"), message(1));
    }
}

#[tokio::test]
async fn permanent_url_failure_is_not_retried() {
    let (address, served) = server(&["404 Not Found"]).await;
    let mut fixture = NotifierFixture::new(url_target(&address), FAST_POLICY);
    fixture.notifier.on_escalation(&message(1));
    let (_, markers, warnings) = fixture.end().await;
    assert!(markers.is_empty() && warnings[0].contains("404"), "{warnings:?}");
    assert!(!warnings[0].contains("s3cret"), "{warnings:?}");
    assert_eq!(served.await.expect("served").len(), 1);
}

#[tokio::test]
async fn unreachable_url_is_reported_once() {
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address")
    };
    let both = NotifyTargets {
        command: Some("cat >>heard".to_owned()),
        ..url_target(&format!("http://{address}/?key=s3cret"))
    };
    let mut fixture = NotifierFixture::new(both, FAST_POLICY);
    fixture.notifier.on_escalation(&message(1));
    fixture.notifier.on_escalation(&message(2));
    let (dir, markers, warnings) = fixture.end().await;
    assert_eq!((markers.len(), warnings.len()), (2, 1), "the command received both");
    assert!(warnings[0].contains("to the url") && !warnings[0].contains("s3cret"), "{warnings:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("heard")).expect("heard").lines().count() % 2, 0);
}

#[tokio::test]
async fn close_waits_at_most_the_close_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let policy = NotifyPolicy { close_timeout: Duration::from_millis(200), ..FAST_POLICY };
    let mut fixture = NotifierFixture::new(url_target(&format!("http://{address}/")), policy);
    fixture.notifier.on_escalation(&message(1));
    let began = std::time::Instant::now();
    let (_, markers, warnings) = fixture.end().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(markers.is_empty() && warnings[0].contains("not all notifications were sent in time"), "{warnings:?}");
}

#[tokio::test]
async fn unwritable_marker_is_reported() {
    let mut fixture = NotifierFixture::new(command_target("true"), FAST_POLICY);
    std::fs::write(fixture.swarm_dir.path().join(MARKERS_DIR), "in the way").expect("written");
    std::fs::set_permissions(fixture.swarm_dir.path().join(MARKERS_DIR), PermissionsExt::from_mode(0o400))
        .expect("set");
    fixture.notifier.on_escalation(&message(1));
    let (_, _, warnings) = fixture.end().await;
    assert!(warnings[0].contains("its marker cannot be written"), "{warnings:?}");
}

#[test]
fn urls_are_redacted() {
    for (text, shown) in [
        ("https://me:s3cret@example.org/hooks/s3cret?k=s3cret", "https://example.org/..."),
        ("http://example.org:8080", "http://example.org:8080/"),
        ("http://[::1]:8080/?s3cret", "http://[::1]:8080/..."),
    ] {
        let url = NotifyUrl::parse(text).expect(text);
        assert_eq!(url.to_string(), shown);
        assert!(!format!("{url:?}").contains("s3cret"));
    }
    for wrong in ["", "example.org", "ftp://example.org/", "/hook", "http://", "http:///x", "http://a b/"] {
        let problem = NotifyUrl::parse(wrong).expect_err(wrong);
        assert!(wrong.len() < 3 || !problem.contains(wrong), "{problem}");
    }
}
