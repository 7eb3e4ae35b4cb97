//! Resolves the engine's endpoint as the docker CLI does, and explains the choice.
//!
//! `DOCKER_HOST` > `DOCKER_CONTEXT` > `currentContext` of the docker CLI's config file > the default socket; if the
//! default socket is absent, the sockets of rootless Docker, Docker Desktop and Podman. Called once at start by
//! `cli/`. Must not: connect to anything, or write.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{EngineError, EngineResult};

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The docker CLI's default ports for `tcp://`: plain, and with TLS.
const DEFAULT_PORTS: (u16, u16) = (2375, 2376);

/// The engine's address and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub address: EngineAddress,
    /// "`DOCKER_HOST`", "context `colima`, current in ...".
    pub reason: String,
}

/// How to reach an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineAddress {
    Unix(PathBuf),
    /// Plain HTTP: `host:port`.
    Tcp(String),
    /// HTTPS with a client certificate.
    Tls {
        /// `host:port`.
        host: String,
        /// The directory with `ca.pem`, `cert.pem` and `key.pem`.
        cert_dir: PathBuf,
    },
    /// `docker system dial-stdio` through ssh: `[user@]host[:port]`.
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

/// Resolves the endpoint from these variables and the files that they name. An empty variable counts as unset.
///
/// # Errors
/// [`EngineError::InvalidSettings`] if a setting names something that does not exist or cannot be used. As for the docker CLI, an
/// unreadable config file is not an error: the default applies, and the reason says so.
pub fn resolve_endpoint(env: &dyn Fn(&str) -> Option<String>) -> EngineResult<Endpoint> {
    Resolver { env, default_socket: Path::new(DEFAULT_SOCKET) }.resolve()
}

struct Resolver<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    default_socket: &'a Path,
}

/// The used part of `config.json`.
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
            let reason = format!("context `{name}`, from DOCKER_CONTEXT");
            return if name == "default" {
                Ok(self.default_endpoint(&reason))
            } else {
                self.endpoint_from_context(&name, reason)
            };
        }
        let Some(dir) = self.config_dir() else { return Ok(self.default_endpoint("default socket")) };
        let file = dir.join("config.json");
        let config = match std::fs::read(&file) {
            Ok(bytes) => serde_json::from_slice::<ConfigFile>(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ConfigFile { current_context: None }),
            Err(error) => Err(error.to_string()),
        };
        match config {
            Ok(ConfigFile { current_context: Some(name) }) if !name.is_empty() && name != "default" => {
                let reason = format!("context `{name}`, current in `{}`", file.display());
                self.endpoint_from_context(&name, reason)
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

    /// The default socket, or the first of its usual replacements that exists.
    fn default_endpoint(&self, reason: &str) -> Endpoint {
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
                    let reason = format!("{reason}: `{}` is absent, {whose} is there", self.default_socket.display());
                    return Endpoint { address: EngineAddress::Unix(path), reason };
                }
            }
        }
        Endpoint { address: EngineAddress::Unix(self.default_socket.to_owned()), reason: reason.to_owned() }
    }

    /// The endpoint of `DOCKER_HOST`, to which alone the TLS variables apply.
    fn endpoint_from_host(&self, host: &str, reason: &str) -> EngineResult<Endpoint> {
        if self.env_var("DOCKER_TLS").is_some() && self.env_var("DOCKER_TLS_VERIFY").is_none() {
            return Err(invalid_settings(
                "DOCKER_TLS asks for TLS without verification, which is not supported: set DOCKER_TLS_VERIFY=1"
                    .to_owned(),
            ));
        }
        let certificates = || {
            let dir = self.env_var("DOCKER_CERT_PATH").map(PathBuf::from).or_else(|| self.config_dir());
            dir.ok_or_else(|| invalid_settings("TLS needs certificates: set DOCKER_CERT_PATH or HOME".to_owned()))
        };
        let verify = self.env_var("DOCKER_TLS_VERIFY").is_some();
        let tls = if verify || host.starts_with("https://") { Some(certificates()?) } else { None };
        Ok(Endpoint { address: parse_address(host, tls, self.default_socket, reason)?, reason: reason.to_owned() })
    }

    /// The endpoint of a docker CLI context. Its directory is named by a hash, and `meta.json` has the name.
    fn endpoint_from_context(&self, name: &str, reason: String) -> EngineResult<Endpoint> {
        let Some(config) = self.config_dir() else {
            return Err(invalid_settings(format!("{reason}, and neither DOCKER_CONFIG nor HOME is set")));
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
                return Err(invalid_settings(format!("{reason}, has no docker endpoint")));
            };
            let cert_dir = config.join("contexts/tls").join(entry.file_name()).join("docker");
            let tls = cert_dir.is_dir().then_some(cert_dir);
            if endpoint.skip_tls_verify && !endpoint.host.starts_with("unix:") && !endpoint.host.starts_with("ssh:") {
                return Err(invalid_settings(format!(
                    "{reason}, asks for TLS without verification, which is not supported"
                )));
            }
            let address = parse_address(&endpoint.host, tls, self.default_socket, &reason)?;
            return Ok(Endpoint { address, reason });
        }
        known.sort();
        let known =
            if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        Err(invalid_settings(format!("{reason}, is not among the contexts in `{}`: {known}", metas.display())))
    }
}

fn invalid_settings(problem: String) -> EngineError {
    EngineError::InvalidSettings { problem }
}

/// Parses a host as the docker CLI does. `tls` is the directory of the certificates, if TLS is wanted.
fn parse_address(host: &str, tls: Option<PathBuf>, default_socket: &Path, reason: &str) -> EngineResult<EngineAddress> {
    let invalid = |problem: String| Err(invalid_settings(format!("{reason}: {problem}")));
    let (scheme, rest) = host.split_once("://").unwrap_or(("tcp", host));
    match scheme {
        "unix" if rest.is_empty() => Ok(EngineAddress::Unix(default_socket.to_owned())),
        "unix" => Ok(EngineAddress::Unix(PathBuf::from(rest))),
        "ssh" => {
            let authority = rest.trim_end_matches('/');
            // ssh parses a leading dash as an option.
            if authority.is_empty() || authority.starts_with('-') || authority.contains(['/', '?', '#']) {
                return invalid(format!("`{host}` must be `ssh://[user@]host[:port]`"));
            }
            if authority.split_once('@').is_some_and(|(user, _)| user.contains(':')) {
                return invalid("an ssh address must not contain a password".to_owned());
            }
            Ok(EngineAddress::Ssh(authority.to_owned()))
        }
        "tcp" | "http" | "https" => {
            let rest = rest.trim_end_matches('/');
            if rest.contains('@') {
                return invalid(format!("a {scheme} address must be a host and a port, without a user"));
            }
            if rest.contains(['/', '?', '#']) {
                return invalid(format!("`{host}` must be a host and a port"));
            }
            let port = if tls.is_some() { DEFAULT_PORTS.1 } else { DEFAULT_PORTS.0 };
            let host = add_default_port(rest, port);
            let Some(cert_dir) = tls else { return Ok(EngineAddress::Tcp(host)) };
            if let Some(missing) = ["ca.pem", "cert.pem", "key.pem"].iter().find(|file| !cert_dir.join(file).is_file())
            {
                return invalid(format!("TLS needs `{missing}` in `{}`, which is missing", cert_dir.display()));
            }
            Ok(EngineAddress::Tls { host, cert_dir })
        }
        _ => invalid(format!("`{host}` must start with unix://, tcp://, http://, https:// or ssh://")),
    }
}

fn add_default_port(host: &str, port: u16) -> String {
    let bracketed = host.starts_with('[');
    let has_port = if bracketed { host.contains("]:") } else { host.contains(':') };
    let name = if host.is_empty() || host.starts_with(':') { format!("localhost{host}") } else { host.to_owned() };
    if has_port { name } else { format!("{name}:{port}") }
}

#[cfg(test)]
mod tests;
