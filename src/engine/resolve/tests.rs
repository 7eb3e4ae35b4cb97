//! Endpoint resolution with a scripted environment and home directory.

use super::*;

use std::collections::BTreeMap;
use std::fs;

struct TestHost {
    dir: tempfile::TempDir,
    env: BTreeMap<String, String>,
}

impl TestHost {
    /// A home, a runtime directory, and no socket.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut env = BTreeMap::new();
        for (name, subdir) in [("HOME", "home"), ("XDG_RUNTIME_DIR", "run")] {
            fs::create_dir(dir.path().join(subdir)).unwrap();
            env.insert(name.to_owned(), dir.path().join(subdir).display().to_string());
        }
        Self { dir, env }
    }

    fn with_env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    fn with_file(self, path: &str, text: &str) -> Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn with_context(self, dir: &str, name: &str, host: &str) -> Self {
        let meta = format!(
            r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}","SkipTLSVerify":false}}}}}}"#
        );
        self.with_file(&format!("home/.docker/contexts/meta/{dir}/meta.json"), &meta)
    }

    fn with_certificates(self, dir: &str) -> Self {
        ["ca", "cert", "key"].iter().fold(self, |host, name| host.with_file(&format!("{dir}/{name}.pem"), ""))
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn resolve(&self) -> EngineResult<Endpoint> {
        let env = |name: &str| self.env.get(name).cloned();
        Resolver { env: &env, default_socket: &self.path("docker.sock") }.resolve()
    }

    fn error_text(&self) -> String {
        self.resolve().unwrap_err().to_string()
    }
}

#[test]
fn default_socket_is_used_when_nothing_is_set() {
    let host = TestHost::new();
    let found = host.resolve().unwrap();
    assert_eq!(found.address, EngineAddress::Unix(host.path("docker.sock")));
    assert_eq!(found.reason, "default socket");
}

#[test]
fn fallback_sockets_are_used_when_the_default_is_absent() {
    let host = TestHost::new().with_file("run/podman/podman.sock", "");
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Unix(host.path("run/podman/podman.sock")));
    assert!(host.resolve().unwrap().reason.contains("is absent, Podman's is there"));
    let host = host.with_file("home/.docker/run/docker.sock", "");
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Unix(host.path("home/.docker/run/docker.sock")));
    let host = host.with_file("run/docker.sock", "");
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Unix(host.path("run/docker.sock")));
    let host = host.with_file("docker.sock", "");
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Unix(host.path("docker.sock")));
}

#[test]
fn host_precedes_context_precedes_current_context() {
    let host = TestHost::new()
        .with_context("aa", "one", "unix:///one.sock")
        .with_context("bb", "two", "unix:///two.sock")
        .with_file("home/.docker/config.json", r#"{"auths": {}, "currentContext": "one"}"#);
    assert_eq!(host.resolve().unwrap().address.to_string(), "unix:///one.sock");
    assert!(host.resolve().unwrap().reason.starts_with("context `one`, current in `"));
    let host = host.with_env("DOCKER_CONTEXT", "two");
    assert_eq!(host.resolve().unwrap().to_string(), "unix:///two.sock (context `two`, from DOCKER_CONTEXT)");
    let host = host.with_env("DOCKER_HOST", "unix:///three.sock");
    assert_eq!(host.resolve().unwrap().to_string(), "unix:///three.sock (DOCKER_HOST)");
    let host = host.with_env("DOCKER_HOST", "").with_env("DOCKER_CONTEXT", "default");
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Unix(host.path("docker.sock")));
}

#[test]
fn docker_config_overrides_the_config_dir() {
    let host = TestHost::new().with_file("other/config.json", r#"{"currentContext": "x"}"#).with_file(
        "other/contexts/meta/1/meta.json",
        r#"{"Name":"x","Endpoints":{"docker":{"Host":"ssh://me@far:2222"}}}"#,
    );
    let dir = host.path("other").display().to_string();
    let host = host.with_env("DOCKER_CONFIG", dir);
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Ssh("me@far:2222".to_owned()));
}

#[test]
fn a_missing_context_error_lists_the_known_contexts() {
    let host = TestHost::new().with_context("aa", "one", "unix:///one.sock").with_env("DOCKER_CONTEXT", "gone");
    let problem = host.error_text();
    assert!(problem.contains("context `gone`, from DOCKER_CONTEXT, is not among"), "{problem}");
    assert!(problem.ends_with("there are one"), "{problem}");
}

#[test]
fn an_unreadable_config_file_is_reported() {
    let host = TestHost::new().with_file("home/.docker/config.json", "{");
    let found = host.resolve().unwrap();
    assert_eq!(found.address, EngineAddress::Unix(host.path("docker.sock")));
    assert!(found.reason.contains("cannot be read: EOF"), "{}", found.reason);
}

#[test]
fn tls_certificates_come_from_the_cert_path_or_the_context() {
    let host = TestHost::new().with_env("DOCKER_HOST", "tcp://far").with_env("DOCKER_TLS_VERIFY", "1");
    assert!(host.error_text().contains("TLS needs `ca.pem` in `"), "{}", host.error_text());
    let host = host.with_certificates("home/.docker");
    let expected = EngineAddress::Tls { host: "far:2376".to_owned(), cert_dir: host.path("home/.docker") };
    assert_eq!(host.resolve().unwrap().address, expected);
    let host = host.with_certificates("certs");
    let dir = host.path("certs");
    let host = host.with_env("DOCKER_CERT_PATH", dir.display().to_string());
    let expected = EngineAddress::Tls { host: "far:2376".to_owned(), cert_dir: dir };
    assert_eq!(host.resolve().unwrap().address, expected);

    let host = TestHost::new()
        .with_context("aa", "far", "tcp://far:99")
        .with_env("DOCKER_CONTEXT", "far")
        // These belong to DOCKER_HOST and not to a context.
        .with_env("DOCKER_TLS_VERIFY", "1");
    assert_eq!(host.resolve().unwrap().address, EngineAddress::Tcp("far:99".to_owned()));
    let host = host.with_certificates("home/.docker/contexts/tls/aa/docker");
    let certificates = host.path("home/.docker/contexts/tls/aa/docker");
    assert_eq!(
        host.resolve().unwrap().address,
        EngineAddress::Tls { host: "far:99".to_owned(), cert_dir: certificates }
    );
}

#[test]
fn docker_host_values_are_parsed() {
    for (host, expected) in [
        ("tcp://h", "tcp://h:2375"),
        ("tcp://h:1/", "tcp://h:1"),
        ("http://h:1", "tcp://h:1"),
        ("h:1", "tcp://h:1"),
        ("tcp://[::1]", "tcp://[::1]:2375"),
        ("tcp://[::1]:9", "tcp://[::1]:9"),
        ("tcp://:9", "tcp://localhost:9"),
        ("ssh://h", "ssh://h"),
        ("ssh://u@h:22/", "ssh://u@h:22"),
    ] {
        let resolved = TestHost::new().with_env("DOCKER_HOST", host).resolve();
        assert_eq!(resolved.unwrap().address.to_string(), expected, "{host}");
    }
    for host in ["npipe:////./pipe/x", "fd://", "ssh://-oProxyCommand=x", "ssh://", "ssh://u:p@h", "tcp://h/x"] {
        let resolved = TestHost::new().with_env("DOCKER_HOST", host).resolve();
        assert!(matches!(resolved, Err(EngineError::InvalidSettings { .. })), "{host}");
    }
    for host in ["ssh://u:secret@h", "tcp://u:secret@h"] {
        assert!(!TestHost::new().with_env("DOCKER_HOST", host).error_text().contains("secret"));
    }
}
