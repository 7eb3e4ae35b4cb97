//! Keys: `longshore mesh keygen`, the file with a node's own, and the files with those that it trusts.
//!
//! A key file is this program's own secret, and is not read if others could read it. What `keygen` prints is the public half, and is
//! itself a trust file; one with several agents has them in `agents`, as JSON or TOML. Must not: print a secret.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::args::MeshKeygenArgs;
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::{CommandResult, ExitStatus, print_stdout};
use crate::protocol::mesh::modules::encryption::{RecipientKey, RecipientKeyPair};
use crate::protocol::mesh::modules::keys::{KeyPermission, KeyRing, PublicKey, SecretKey};

/// The most of a file that is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file with a node's own keys.
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

/// An agent that is trusted.
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
    rights: Vec<RightName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RightName {
    Authorize,
    Change,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    agents: Vec<TrustedAgent>,
}

/// A node's own keys.
#[derive(Clone)]
pub struct NodeKeys {
    /// What it signs with.
    pub signing_key: Arc<SecretKey>,
    /// What it opens with.
    pub decryption_key: RecipientKeyPair,
}

/// Those that a node trusts.
#[derive(Default)]
pub struct TrustedKeys {
    /// Their keys.
    pub ring: Arc<KeyRing>,
    /// What each may have done here.
    pub allowed_actions: Vec<(String, Vec<String>)>,
    /// Whom something can be sealed for.
    pub recipients: Vec<RecipientKey>,
}

/// Makes a key file, and prints its public half.
pub fn keygen(args: &MeshKeygenArgs) -> CommandResult {
    let cannot = |error| CommandError::machinery("cannot get random bytes of the system").with_cause(&error);
    let mut random = [0; 64];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(cannot)?;
    let encode = |bytes: &[u8]| BASE64.encode(bytes);
    let mut file = KeyFile {
        agent: args.agent.clone(),
        key_id: String::new(),
        signing_key: encode(&random[..32]),
        decryption_key: encode(&random[32..]),
    };
    let verify = decode_node_keys(&file)
        .ok_or_else(|| CommandError::input(format!("`{}` is no absolute URI", args.agent)))?
        .signing_key
        .public_key()
        .to_base64();
    file.key_id = Sha256::digest(&verify).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let own = decode_node_keys(&file).ok_or_else(|| CommandError::machinery("the key is none"))?;
    let text = serde_json::to_string_pretty(&file)
        .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?;
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.file).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()
    });
    written.map_err(|error| {
        CommandError::input(format!("cannot make the key file `{}`", args.file.display())).with_cause(&error)
    })?;
    let public = TrustedAgent {
        agent: file.agent,
        key_id: file.key_id,
        verifying_key: verify,
        encryption_key: Some(own.decryption_key.recipient_key().to_base64()),
        rights: Vec::new(),
        allow: Vec::new(),
    };
    print_stdout(&format!(
        "{}\n",
        serde_json::to_string(&public)
            .map_err(|error| CommandError::from_error(CommandErrorKind::Machinery, &error))?
    ))?;
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
        let text = format!("others can read the {what} file `{}`", path.display());
        return Err(CommandError::input(text).with_hint(format!("chmod 600 {}", path.display())));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(bad)?;
    Ok(text)
}

/// The keys of a key file.
pub fn load_node_keys(path: &Path) -> Result<NodeKeys, CommandError> {
    let text = read_key_file(path, "key", true)?;
    // What is in it is not quoted: it is a secret.
    let file = serde_json::from_str::<KeyFile>(&text).ok();
    file.as_ref().and_then(decode_node_keys).ok_or_else(|| {
        CommandError::input(format!("`{}` is no key file", path.display()))
            .with_hint("`longshore mesh keygen` makes one")
    })
}

/// The agents of trust files.
pub fn load_trusted_keys<'p>(paths: impl IntoIterator<Item = &'p Path>) -> Result<TrustedKeys, CommandError> {
    let mut agents = Vec::new();
    for path in paths {
        agents.extend(load_trust_file(path)?);
    }
    let mut trust = TrustedKeys::default();
    let mut keys = Vec::new();
    for agent in agents {
        let bad = |error: &dyn std::error::Error| CommandError::from_error(CommandErrorKind::Input, error);
        if keys.iter().any(|(id, _): &(String, PublicKey)| *id == agent.key_id) {
            return Err(CommandError::input(format!("the key `{}` is trusted twice", agent.key_id)));
        }
        let mut key = PublicKey::new(&agent.key_id, &agent.agent, &agent.verifying_key).map_err(|error| bad(&error))?;
        for right in &agent.rights {
            key = key.with_permission(match right {
                RightName::Authorize => KeyPermission::Authorize,
                RightName::Change => KeyPermission::ModifyMessages,
            });
        }
        if let Some(seal) = &agent.encryption_key {
            trust.recipients.push(RecipientKey::new(&agent.key_id, seal).map_err(|error| bad(&error))?);
        }
        keys.push((agent.key_id, key));
        trust.allowed_actions.push((agent.agent, agent.allow));
    }
    trust.ring = Arc::new(keys.into_iter().map(|(_, key)| key).collect());
    Ok(trust)
}

fn load_trust_file(path: &Path) -> Result<Vec<TrustedAgent>, CommandError> {
    let text = read_key_file(path, "trust", false)?;
    let none = |error: &dyn std::error::Error| {
        CommandError::input(format!("`{}` is no trust file", path.display())).with_cause(error).with_hint(
            "it has what `longshore mesh keygen` prints, or `agents`, a list of such; `rights` (authorize, change) and \
             `allow` (names of blocks, or Body) may be added to each",
        )
    };
    if path.extension().is_some_and(|extension| extension == "toml") {
        return toml::from_str::<TrustFile>(&text).map(|file| file.agents).map_err(|error| none(&error));
    }
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| none(&error))?;
    if value.get("agents").is_some() {
        serde_json::from_value::<TrustFile>(value).map(|file| file.agents).map_err(|error| none(&error))
    } else {
        serde_json::from_value::<TrustedAgent>(value).map(|one| vec![one]).map_err(|error| none(&error))
    }
}
