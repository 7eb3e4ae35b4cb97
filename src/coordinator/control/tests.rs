//! Commands over a real socket.

use super::*;

fn dir(root: &Path) -> SwarmDir {
    let swarm = "a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d".parse().expect("valid");
    SwarmDir::create(root, swarm).expect("a directory")
}

#[tokio::test]
async fn stop_is_answered_even_with_a_long_socket_path() {
    let temp_dir = tempfile::tempdir().expect("a directory");
    let deep = temp_dir.path().join("a".repeat(100)).join("b".repeat(100));
    std::fs::create_dir_all(&deep).expect("made");
    let dir = dir(&deep);
    let (commands, mut arrived) = mpsc::channel(1);
    std::fs::write(dir.path().join(SOCKET_FILE), "left behind").expect("written");
    let server = serve(&dir, commands).expect("listening");
    let stop = ControlCommand::Stop { level: StopLevel::Kill };
    let loop_of_it = async {
        let request = arrived.recv().await.expect("a request");
        request.reply.send(ControlReply::Accepted).expect("somebody waits");
        request.command
    };
    let (answer, command) = tokio::join!(send(&dir, &stop), loop_of_it);
    assert_eq!((answer.expect("answered"), command), (ControlReply::Accepted, stop.clone()));
    drop(arrived);
    assert!(matches!(send(&dir, &stop).await.expect("answered"), ControlReply::Refused { .. }));
    server.abort();
    let _ = server.await;
    assert!(!dir.path().join(SOCKET_FILE).exists());
    assert!(matches!(send(&dir, &stop).await, Err(ControlError::NotListening { .. })));
}

#[tokio::test]
async fn invalid_commands_are_refused() {
    let temp_dir = tempfile::tempdir().expect("a directory");
    let dir = dir(temp_dir.path());
    let (commands, mut arrived) = mpsc::channel(1);
    let server = serve(&dir, commands).expect("listening");
    for nonsense in ["{\"command\":\"dance\"}\n", "\n", "{\"command\":\"stop\",\"level\":\"kill\",\"x\":1}\n"] {
        let mut stream = UnixStream::connect(dir.path().join(SOCKET_FILE)).await.expect("connected");
        stream.write_all(nonsense.as_bytes()).await.expect("written");
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("read");
        assert!(text.starts_with("{\"answer\":\"refused\""), "{nonsense}: {text}");
    }
    assert!(arrived.try_recv().is_err());
    server.abort();
}
