//! Which engine: the answer that the docker CLI would give, and why.
//!
//! `DOCKER_HOST` > `DOCKER_CONTEXT` > `currentContext` of the docker CLI's config file > the default socket; where the
//! default socket is absent, the sockets that rootless Docker, Docker Desktop and Podman use. Called once at start by
//! `cli/`. Must not: connect to anything, or write.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{EngineError, EngineResult};

/// Where Docker listens unless told otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// Ports of the docker CLI for `tcp://` without one: plain, and with TLS.
const DEFAULT_PORTS: (u16, u16) = (2375, 2376);

/// Where the engine is, and why there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// How to reach it.
    pub address: EngineAddress,
    /// What decided: "`DOCKER_HOST`", "context `colima`, current in ...".
    pub reason: String,
}

/// How to reach an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// Plain HTTP: `host:port`.
    Tcp(String),
    /// HTTPS with a client certificate.
    Tls {
        /// `host:port`.
        host: String,
        /// Folder with `ca.pem`, `cert.pem` and `key.pem`.
        cert_dir: PathBuf,
    },
    /// `docker system dial-stdio` at the other end of ssh: `[user@]host[:port]`.
    Ssh(String),
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Tls { host, .. } => write!(f, "https://{host}"),
            Self::Ssh(host) => write!(f, "ssh://{host}"),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address, self.reason)
    }
}

/// The endpoint that these variables and the files they lead to name. A set but empty variable is an absent one.
///
/// # Errors
/// [`EngineError::InvalidSettings`] where a setting names something that does not exist or cannot be used. A config file that
/// cannot be read is not an error, as for the docker CLI: the default is taken, and `why` says so.
pub fn resolve_endpoint(env: &dyn Fn(&str) -> Option<String>) -> EngineResult<Endpoint> {
    Resolver { env, default_socket: Path::new(DEFAULT_SOCKET) }.resolve()
}

struct Resolver<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    default_socket: &'a Path,
}

/// `config.json`, as far as it matters here.
#[derive(Deserialize)]
struct ConfigFile {
    #[serde(rename = "currentContext", default)]
    current_context: Option<String>,
}

/// `contexts/meta/<hash>/meta.json`.
#[derive(Deserialize)]
struct ContextMeta {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Endpoints", default)]
    endpoints: ContextEndpoints,
}

#[derive(Deserialize, Default)]
struct ContextEndpoints {
    docker: Option<ContextEndpoint>,
}

#[derive(Deserialize)]
struct ContextEndpoint {
    #[serde(rename = "Host", default)]
    host: String,
    #[serde(rename = "SkipTLSVerify", default)]
    skip_tls_verify: bool,
}

impl Resolver<'_> {
    fn resolve(&self) -> EngineResult<Endpoint> {
        if let Some(host) = self.env_var("DOCKER_HOST") {
            return self.endpoint_from_host(&host, "DOCKER_HOST");
        }
        if let Some(name) = self.env_var("DOCKER_CONTEXT") {
            let why = format!("context `{name}`, from DOCKER_CONTEXT");
            return if name == "default" {
                Ok(self.default_endpoint(&why))
            } else {
                self.endpoint_from_context(&name, why)
            };
        }
        let Some(folder) = self.config_dir() else { return Ok(self.default_endpoint("default socket")) };
        let file = folder.join("config.json");
        let config = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice::<ConfigFile>(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ConfigFile { current_context: None }),
            Err(error) => Err(error.to_string()),
        };
        match config {
            Ok(ConfigFile { current_context: Some(name) }) if !name.is_empty() && name != "default" => {
                let why = format!("context `{name}`, current in `{}`", file.display());
                self.endpoint_from_context(&name, why)
            }
            Ok(_) => Ok(self.default_endpoint("default socket")),
            Err(problem) => {
                Ok(self.default_endpoint(&format!("default socket; `{}` cannot be read: {problem}", file.display())))
            }
        }
    }

    fn env_var(&self, name: &str) -> Option<String> {
        (self.env)(name).filter(|value| !value.is_empty())
    }

    fn config_dir(&self) -> Option<PathBuf> {
        let named = self.env_var("DOCKER_CONFIG").map(PathBuf::from);
        named.or_else(|| self.env_var("HOME").map(|home| Path::new(&home).join(".docker")))
    }

    /// The default socket, or the first of its usual replacements that is there.
    fn default_endpoint(&self, why: &str) -> Endpoint {
        if !self.default_socket.exists() {
            let runtime = self.env_var("XDG_RUNTIME_DIR").map(PathBuf::from);
            let home = self.env_var("HOME").map(PathBuf::from);
            let others = [
                ("rootless Docker's", runtime.as_ref().map(|dir| dir.join("docker.sock"))),
                ("Docker Desktop's", home.as_ref().map(|dir| dir.join(".docker/run/docker.sock"))),
                ("Podman's", runtime.as_ref().map(|dir| dir.join("podman/podman.sock"))),
            ];
            for (whose, path) in others {
                if let Some(path) = path.filter(|path| path.exists()) {
                    let absent = self.default_socket.display();
                    return Endpoint {
                        address: EngineAddress::Unix(path),
                        reason: format!("{why}: `{absent}` is absent, {whose} is there"),
                    };
                }
            }
        }
        Endpoint { address: EngineAddress::Unix(self.default_socket.to_owned()), reason: why.to_owned() }
    }

    /// What `DOCKER_HOST` says, with the TLS variables that apply to it alone.
    fn endpoint_from_host(&self, host: &str, why: &str) -> EngineResult<Endpoint> {
        if self.env_var("DOCKER_TLS").is_some() && self.env_var("DOCKER_TLS_VERIFY").is_none() {
            return Err(invalid_settings(
                "DOCKER_TLS asks for TLS without verification, which is not done; set DOCKER_TLS_VERIFY=1".to_owned(),
            ));
        }
        let certificates = || {
            let folder = self.env_var("DOCKER_CERT_PATH").map(PathBuf::from).or_else(|| self.config_dir());
            folder.ok_or_else(|| {
                invalid_settings("TLS is asked for, and neither DOCKER_CERT_PATH nor HOME is set".to_owned())
            })
        };
        let verify = self.env_var("DOCKER_TLS_VERIFY").is_some();
        let tls = if verify || host.starts_with("https://") { Some(certificates()?) } else { None };
        Ok(Endpoint { address: parse_address(host, tls, self.default_socket, why)?, reason: why.to_owned() })
    }

    /// A named context of the docker CLI. Its folder is named by a hash of its name; the name stands in it too.
    fn endpoint_from_context(&self, name: &str, why: String) -> EngineResult<Endpoint> {
        let Some(config) = self.config_dir() else {
            return Err(invalid_settings(format!("{why}, and neither DOCKER_CONFIG nor HOME is set")));
        };
        let metas = config.join("contexts/meta");
        let mut known = Vec::new();
        for entry in std::fs::read_dir(&metas).into_iter().flatten().flatten() {
            let Ok(bytes) = std::fs::read(entry.path().join("meta.json")) else { continue };
            let Ok(meta) = serde_json::from_slice::<ContextMeta>(&bytes) else { continue };
            if meta.name != name {
                known.push(meta.name);
                continue;
            }
            let Some(endpoint) = meta.endpoints.docker.filter(|endpoint| !endpoint.host.is_empty()) else {
                return Err(invalid_settings(format!("{why}, and it has no docker endpoint")));
            };
            let certificates = config.join("contexts/tls").join(entry.file_name()).join("docker");
            let tls = certificates.is_dir().then_some(certificates);
            if endpoint.skip_tls_verify && !endpoint.host.starts_with("unix:") && !endpoint.host.starts_with("ssh:") {
                return Err(invalid_settings(format!("{why}, asks for TLS without verification, which is not done")));
            }
            return Ok(Endpoint {
                address: parse_address(&endpoint.host, tls, self.default_socket, &why)?,
                reason: why,
            });
        }
        known.sort();
        let known =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        Err(invalid_settings(format!("{why}, is not among the contexts in `{}`: {known}", metas.display())))
    }
}

fn invalid_settings(problem: String) -> EngineError {
    EngineError::InvalidSettings { problem }
}

/// Reads a host as the docker CLI writes it; `tls` is the folder of the certificates, where TLS is wanted.
fn parse_address(host: &str, tls: Option<PathBuf>, default_socket: &Path, why: &str) -> EngineResult<EngineAddress> {
    let (scheme, rest) = host.split_once("://").unwrap_or(("tcp", host));
    match scheme {
        "unix" if rest.is_empty() => Ok(EngineAddress::Unix(default_socket.to_owned())),
        "unix" => Ok(EngineAddress::Unix(PathBuf::from(rest))),
        "ssh" => {
            let authority = rest.trim_end_matches('/');
            // ssh reads what begins with a dash as an option.
            if authority.is_empty() || authority.starts_with('-') || authority.contains(['/', '?', '#']) {
                return Err(invalid_settings(format!("{why}: `{host}` must be `ssh://[user@]host[:port]`")));
            }
            if authority.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
                return Err(invalid_settings(format!("{why}: an ssh address must not hold a password")));
            }
            Ok(EngineAddress::Ssh(authority.to_owned()))
        }
        "tcp" | "http" | "https" => {
            let rest = rest.trim_end_matches('/');
            if rest.contains('@') {
                return Err(invalid_settings(format!(
                    "{why}: a {scheme} address must be a host and a port, without a user"
                )));
            }
            if rest.contains(['/', '?', '#']) {
                return Err(invalid_settings(format!("{why}: `{host}` must be a host and a port")));
            }
            let port = if tls.is_some() { DEFAULT_PORTS.1 } else { DEFAULT_PORTS.0 };
            let host = add_default_port(rest, port);
            let Some(certificates) = tls else { return Ok(EngineAddress::Tcp(host)) };
            for file in ["ca.pem", "cert.pem", "key.pem"] {
                if !certificates.join(file).is_file() {
                    let folder = certificates.display();
                    return Err(invalid_settings(format!(
                        "{why}: TLS needs `{file}` in `{folder}`, and it is not there"
                    )));
                }
            }
            Ok(EngineAddress::Tls { host, cert_dir: certificates })
        }
        _ => Err(invalid_settings(format!(
            "{why}: `{host}` must begin with unix://, tcp://, http://, https:// or ssh://"
        ))),
    }
}

fn add_default_port(host: &str, port: u16) -> String {
    let bracketed = host.starts_with('[');
    let has_port = if bracketed { host.contains("]:") } else { host.contains(':') };
    let name = if host.is_empty() || host.starts_with(':') { format!("localhost{host}") } else { host.to_owned() };
    if has_port { name } else { format!("{name}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeMap;
    use std::fs;

    struct TestHost {
        dir: tempfile::TempDir,
        env: BTreeMap<String, String>,
    }

    impl TestHost {
        /// A home, a runtime folder, and no socket.
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mut env = BTreeMap::new();
            for (name, folder) in [("HOME", "home"), ("XDG_RUNTIME_DIR", "run")] {
                fs::create_dir(dir.path().join(folder)).unwrap();
                env.insert(name.to_owned(), dir.path().join(folder).display().to_string());
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

        fn with_context(self, folder: &str, name: &str, host: &str) -> Self {
            let meta = format!(
                r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}","SkipTLSVerify":false}}}}}}"#
            );
            self.with_file(&format!("home/.docker/contexts/meta/{folder}/meta.json"), &meta)
        }

        fn with_certificates(self, folder: &str) -> Self {
            ["ca", "cert", "key"]
                .iter()
                .fold(self, |machine, name| machine.with_file(&format!("{folder}/{name}.pem"), ""))
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
        let machine = TestHost::new();
        let found = machine.resolve().unwrap();
        assert_eq!(found.address, EngineAddress::Unix(machine.path("docker.sock")));
        assert_eq!(found.reason, "default socket");
    }

    #[test]
    fn fallback_sockets_are_used_when_the_default_is_absent() {
        let machine = TestHost::new().with_file("run/podman/podman.sock", "");
        assert_eq!(machine.resolve().unwrap().address, EngineAddress::Unix(machine.path("run/podman/podman.sock")));
        assert!(machine.resolve().unwrap().reason.contains("is absent, Podman's is there"));
        let machine = machine.with_file("home/.docker/run/docker.sock", "");
        assert_eq!(
            machine.resolve().unwrap().address,
            EngineAddress::Unix(machine.path("home/.docker/run/docker.sock"))
        );
        let machine = machine.with_file("run/docker.sock", "");
        assert_eq!(machine.resolve().unwrap().address, EngineAddress::Unix(machine.path("run/docker.sock")));
        let machine = machine.with_file("docker.sock", "");
        assert_eq!(machine.resolve().unwrap().address, EngineAddress::Unix(machine.path("docker.sock")));
    }

    #[test]
    fn host_precedes_context_precedes_current_context() {
        let machine = TestHost::new()
            .with_context("aa", "one", "unix:///one.sock")
            .with_context("bb", "two", "unix:///two.sock")
            .with_file("home/.docker/config.json", r#"{"auths": {}, "currentContext": "one"}"#);
        assert_eq!(machine.resolve().unwrap().address.to_string(), "unix:///one.sock");
        assert!(machine.resolve().unwrap().reason.starts_with("context `one`, current in `"));
        let machine = machine.with_env("DOCKER_CONTEXT", "two");
        assert_eq!(machine.resolve().unwrap().to_string(), "unix:///two.sock (context `two`, from DOCKER_CONTEXT)");
        let machine = machine.with_env("DOCKER_HOST", "unix:///three.sock");
        assert_eq!(machine.resolve().unwrap().to_string(), "unix:///three.sock (DOCKER_HOST)");
        let machine = machine.with_env("DOCKER_HOST", "").with_env("DOCKER_CONTEXT", "default");
        assert_eq!(machine.resolve().unwrap().address, EngineAddress::Unix(machine.path("docker.sock")));
    }

    #[test]
    fn docker_config_overrides_the_config_dir() {
        let machine = TestHost::new().with_file("other/config.json", r#"{"currentContext": "x"}"#).with_file(
            "other/contexts/meta/1/meta.json",
            r#"{"Name":"x","Endpoints":{"docker":{"Host":"ssh://me@far:2222"}}}"#,
        );
        let folder = machine.path("other").display().to_string();
        let machine = machine.with_env("DOCKER_CONFIG", folder);
        assert_eq!(machine.resolve().unwrap().address, EngineAddress::Ssh("me@far:2222".to_owned()));
    }

    #[test]
    fn a_missing_context_error_lists_the_known_contexts() {
        let machine = TestHost::new().with_context("aa", "one", "unix:///one.sock").with_env("DOCKER_CONTEXT", "gone");
        let problem = machine.error_text();
        assert!(problem.contains("context `gone`, from DOCKER_CONTEXT, is not among"), "{problem}");
        assert!(problem.ends_with("there are one"), "{problem}");
    }

    #[test]
    fn an_unreadable_config_file_is_reported() {
        let machine = TestHost::new().with_file("home/.docker/config.json", "{");
        let found = machine.resolve().unwrap();
        assert_eq!(found.address, EngineAddress::Unix(machine.path("docker.sock")));
        assert!(found.reason.contains("cannot be read: EOF"), "{}", found.reason);
    }

    #[test]
    fn tls_certificates_come_from_the_cert_path_or_the_context() {
        let machine = TestHost::new().with_env("DOCKER_HOST", "tcp://far").with_env("DOCKER_TLS_VERIFY", "1");
        assert!(machine.error_text().contains("TLS needs `ca.pem` in `"), "{}", machine.error_text());
        let machine = machine.with_certificates("home/.docker");
        let expected = EngineAddress::Tls { host: "far:2376".to_owned(), cert_dir: machine.path("home/.docker") };
        assert_eq!(machine.resolve().unwrap().address, expected);
        let machine = machine.with_certificates("certs");
        let folder = machine.path("certs");
        let machine = machine.with_env("DOCKER_CERT_PATH", folder.display().to_string());
        let expected = EngineAddress::Tls { host: "far:2376".to_owned(), cert_dir: folder };
        assert_eq!(machine.resolve().unwrap().address, expected);

        let machine = TestHost::new()
            .with_context("aa", "far", "tcp://far:99")
            .with_env("DOCKER_CONTEXT", "far")
            // These belong to DOCKER_HOST and not to a context.
            .with_env("DOCKER_TLS_VERIFY", "1");
        assert_eq!(machine.resolve().unwrap().address, EngineAddress::Tcp("far:99".to_owned()));
        let machine = machine.with_certificates("home/.docker/contexts/tls/aa/docker");
        let certificates = machine.path("home/.docker/contexts/tls/aa/docker");
        assert_eq!(
            machine.resolve().unwrap().address,
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
            let machine = TestHost::new().with_env("DOCKER_HOST", host);
            assert_eq!(machine.resolve().unwrap().address.to_string(), expected, "{host}");
        }
        for host in ["npipe:////./pipe/x", "fd://", "ssh://-oProxyCommand=x", "ssh://", "ssh://u:p@h", "tcp://h/x"] {
            let machine = TestHost::new().with_env("DOCKER_HOST", host);
            assert!(matches!(machine.resolve(), Err(EngineError::InvalidSettings { .. })), "{host}");
        }
        for host in ["ssh://u:secret@h", "tcp://u:secret@h"] {
            assert!(!TestHost::new().with_env("DOCKER_HOST", host).error_text().contains("secret"));
        }
    }
}
