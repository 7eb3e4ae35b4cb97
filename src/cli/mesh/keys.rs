//! `longshore mesh keygen`, key files and trust files.
//!
//! A key file is secret, and is refused if other users can read it. The output of `keygen` is the public half and a trust file of one
//! agent; a list of agents is in `agents`, as JSON or TOML. Must not: print a secret.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::args::MeshKeygenArgs;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::protocol::mesh::canonical::sha256_hex;
use crate::protocol::mesh::modules::encryption::{RecipientKey, RecipientKeyPair};
use crate::protocol::mesh::modules::keys::{KeyPermission, KeyRing, PublicKey, SecretKey};

const MAX_FILE_BYTES: u64 = 1 << 20;

/// A node's own keys.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KeyFile {
    agent: String,
    key_id: String,
    #[serde(rename = "sign")]
    signing_key: String,
    #[serde(rename = "open")]
    decryption_key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TrustedAgent {
    agent: String,
    key_id: String,
    #[serde(rename = "verify")]
    verifying_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "seal")]
    encryption_key: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rights: Vec<KeyPermission>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    agents: Vec<TrustedAgent>,
}

#[derive(Clone)]
pub struct NodeKeys {
    pub signing_key: Arc<SecretKey>,
    pub decryption_key: RecipientKeyPair,
}

#[derive(Default)]
pub struct TrustedKeys {
    pub ring: Arc<KeyRing>,
    /// Actions permitted to each agent.
    pub allowed_actions: Vec<(String, Vec<String>)>,
    /// Agents to encrypt for.
    pub recipients: Vec<RecipientKey>,
}

/// Creates a key file and prints its public half.
pub fn keygen(args: &MeshKeygenArgs) -> CommandResult {
    let cannot = |error| CommandError::machinery("cannot read random bytes from the system").with_cause(&error);
    let mut random = [0; 64];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(cannot)?;
    let mut file = KeyFile {
        agent: args.agent.clone(),
        key_id: String::new(),
        signing_key: BASE64.encode(&random[..32]),
        decryption_key: BASE64.encode(&random[32..]),
    };
    let verify = decode_node_keys(&file)
        .ok_or_else(|| CommandError::input(format!("`{}` is not an absolute URI", args.agent)))?
        .signing_key
        .public_key()
        .to_base64();
    file.key_id = sha256_hex(&verify)[..16].to_owned();
    let own = decode_node_keys(&file).ok_or_else(|| CommandError::machinery("the created key is invalid"))?;
    let machinery = |error| CommandError::from_error(CommandErrorKind::Machinery, &error);
    let text = serde_json::to_string_pretty(&file).map_err(machinery)?;
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    });
    written.map_err(|error| {
        CommandError::input(format!("cannot create the key file `{}`", args.file.display())).with_cause(&error)
    })?;
    let public = TrustedAgent {
        agent: file.agent,
        key_id: file.key_id,
        verifying_key: verify,
        encryption_key: Some(own.decryption_key.recipient_key().to_base64()),
        rights: Vec::new(),
        allow: Vec::new(),
    };
    print_stdout(&format!("{}\n", serde_json::to_string(&public).map_err(machinery)?))?;
    Ok(ExitStatus::Success)
}

fn decode_node_keys(file: &KeyFile) -> Option<NodeKeys> {
    let bytes = |text: &str| <[u8; 32]>::try_from(BASE64.decode(text).ok()?).ok();
    let sign = SecretKey::new(&file.key_id, &file.agent, &bytes(&file.signing_key)?).ok()?;
    Some(NodeKeys {
        signing_key: Arc::new(sign),
        decryption_key: RecipientKeyPair::new(&file.key_id, &bytes(&file.decryption_key)?),
    })
}

fn read_key_file(path: &Path, what: &str, secret: bool) -> Result<String, CommandError> {
    let bad =
        |error| CommandError::input(format!("cannot read the {what} file `{}`", path.display())).with_cause(&error);
    let file = File::open(path).map_err(bad)?;
    if secret && file.metadata().map_err(bad)?.mode() & 0o077 != 0 {
        let text = format!("other users can read the {what} file `{}`", path.display());
        return Err(CommandError::input(text).with_hint(format!("chmod 600 {}", path.display())));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(bad)?;
    Ok(text)
}

pub fn load_node_keys(path: &Path) -> Result<NodeKeys, CommandError> {
    let text = read_key_file(path, "key", true)?;
    // Parse errors quote the content, which is secret.
    let file = serde_json::from_str::<KeyFile>(&text).ok();
    file.as_ref().and_then(decode_node_keys).ok_or_else(|| {
        CommandError::input(format!("`{}` is not a key file", path.display()))
            .with_hint("create one with `longshore mesh keygen`")
    })
}

pub fn load_trusted_keys<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<TrustedKeys, CommandError> {
    let mut agents = Vec::new();
    for path in paths {
        agents.extend(load_trust_file(path)?);
    }
    let mut trust = TrustedKeys::default();
    let mut keys = BTreeMap::new();
    for agent in agents {
        let invalid = |error: &dyn std::error::Error| CommandError::from_error(CommandErrorKind::Input, error);
        let mut key =
            PublicKey::new(&agent.key_id, &agent.agent, &agent.verifying_key).map_err(|error| invalid(&error))?;
        for permission in &agent.rights {
            key = key.with_permission(*permission);
        }
        if let Some(seal) = &agent.encryption_key {
            trust.recipients.push(RecipientKey::new(&agent.key_id, seal).map_err(|error| invalid(&error))?);
        }
        if keys.insert(agent.key_id.clone(), key).is_some() {
            return Err(CommandError::input(format!("duplicate key `{}` in the trust files", agent.key_id)));
        }
        trust.allowed_actions.push((agent.agent, agent.allow));
    }
    trust.ring = Arc::new(keys.into_values().collect());
    Ok(trust)
}

fn load_trust_file(path: &Path) -> Result<Vec<TrustedAgent>, CommandError> {
    let text = read_key_file(path, "trust", false)?;
    let invalid = |error: &dyn std::error::Error| {
        CommandError::input(format!("`{}` is not a trust file", path.display())).with_cause(error).with_hint(
            "use the output of `longshore mesh keygen`, or a list of such in `agents`; each may have `rights` (authorize, \
             change) and `allow` (names of blocks, or Body)",
        )
    };
    if path.extension().is_some_and(|extension| extension == "toml") {
        return toml::from_str::<TrustFile>(&text).map(|file| file.agents).map_err(|error| invalid(&error));
    }
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| invalid(&error))?;
    if value.get("agents").is_some() {
        serde_json::from_value::<TrustFile>(value).map(|file| file.agents).map_err(|error| invalid(&error))
    } else {
        serde_json::from_value::<TrustedAgent>(value).map(|one| vec![one]).map_err(|error| invalid(&error))
    }
}
