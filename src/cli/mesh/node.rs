//! A node, as the command line describes it.
//!
//! Called by `serve.rs`. Must not: open a socket.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use super::args::MeshServeArgs;
use super::keys::{NodeKeys, TrustedKeys};
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::protocol::mesh::frame::Header;
use crate::protocol::mesh::http::{Client, ClientOptions, NextHops, NodeAddress};
use crate::protocol::mesh::limits::FrameLimits;
use crate::protocol::mesh::modules::audit::Audit;
use crate::protocol::mesh::modules::authentication::Authentication;
use crate::protocol::mesh::modules::authorization::{Authorization, BODY_ACTION};
use crate::protocol::mesh::modules::encryption::Encryption;
use crate::protocol::mesh::modules::freshness::Freshness;
use crate::protocol::mesh::modules::routing::Routing;
use crate::protocol::mesh::modules::signature::{Signature, is_covered_by_signature};
use crate::protocol::mesh::modules::ttl::Ttl;
use crate::protocol::mesh::modules::upgrade::Upgrade;
use crate::protocol::mesh::modules::validation::Validation;
use crate::protocol::mesh::node::{Node, NodeKind};
use crate::protocol::mesh::relay::{APPLIED_BLOCK, ChangeAction, FrameChange};
use crate::protocol::mesh::role::is_iri;

/// The features of an active intermediary, by URI.
const ANNOTATE_FEATURE: &str = "urn:longshore:mesh:feature:annotate";
const MASK_FEATURE: &str = "urn:longshore:mesh:feature:mask";

/// How long messages are remembered where somebody is trusted.
const DEFAULT_REPLAY_WINDOW: Duration = Duration::from_secs(300);

/// Where the node stands on the path, by what it is asked to do.
fn node_kind(args: &MeshServeArgs) -> Result<NodeKind, CommandError> {
    let active = args.active || !args.annotate.is_empty() || !args.mask.is_empty();
    match (args.forward.is_some() || !args.route.is_empty(), active) {
        (false, false) => Ok(NodeKind::UltimateReceiver),
        (true, false) => Ok(NodeKind::ForwardingIntermediary),
        (true, true) => Ok(NodeKind::ActiveIntermediary),
        (false, true) => Err(CommandError::input("an active intermediary has to know where frames go")
            .with_hint("add --forward URL, or --route URI=URL")),
    }
}

/// What would make a node that takes or answers nothing.
fn validate_args(args: &MeshServeArgs) -> Result<(), CommandError> {
    let none = |flag: &str| CommandError::input(format!("`{flag}` leaves nothing: it must be more than 0"));
    for (flag, time) in [("--timeout", &args.timeout), ("--patience", &args.patience)] {
        if time.0.is_zero() {
            return Err(none(flag));
        }
    }
    if args.max_frame.0 == 0 {
        return Err(none("--max-frame"));
    }
    if args.handler.as_deref().is_some_and(|command| command.trim().is_empty()) {
        return Err(CommandError::input("`--handler` is empty: it must be a command"));
    }
    Ok(())
}

/// The node.
pub fn build_node(
    args: &MeshServeArgs,
    uri: &str,
    own: Option<&NodeKeys>,
    trust: &TrustedKeys,
) -> Result<Node, CommandError> {
    validate_args(args)?;
    let bad = |error| CommandError::from_error(CommandErrorKind::Input, &error);
    let mut node = Node::new(uri, node_kind(args)?).map_err(bad)?;
    let bytes = usize::try_from(args.max_frame.0).unwrap_or(usize::MAX);
    node.limits = FrameLimits { bytes, text: bytes.min(FrameLimits::default().text), ..FrameLimits::default() };
    for role in &args.role {
        let role = match role.split_once('=').filter(|(token, iri)| !token.contains(':') && is_iri(iri)) {
            Some((token, iri)) => {
                node.role_registry
                    .register_token(token, iri)
                    .map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))?;
                token
            }
            None => role,
        };
        node = node.with_role(role).map_err(bad)?;
    }
    let names = |names: &[String]| -> Result<(), CommandError> {
        names.iter().try_for_each(|name| validate_block(name, serde_json::Map::new()))
    };
    for list in [&args.understand, &args.reinsert, &args.allow] {
        names(list)?;
    }
    for name in args.need.iter().filter(|name| *name != BODY_ACTION) {
        names(std::slice::from_ref(name))?;
    }
    if let Some(name) = args.need.iter().find(|name| !is_covered_by_signature(name)) {
        return Err(CommandError::input(format!(
            "`{name}` cannot be needed from a sender: every node on the way may change it"
        )));
    }
    if let Some(own) = own.filter(|own| own.signing_key.agent() != uri) {
        return Err(CommandError::input(format!(
            "the key is of `{}`, and the node is `{uri}`",
            own.signing_key.agent()
        )));
    }
    if own.is_some() && args.trust.is_empty() && !args.audit && node.kind() != NodeKind::UltimateReceiver {
        return Err(CommandError::input("an intermediary does nothing with a key, unless it knows whom it trusts")
            .with_hint("add --trust FILE, so that it checks what it presents itself with and signs anew"));
    }
    if args.need.iter().any(|name| name == BODY_ACTION) && node.kind() != NodeKind::UltimateReceiver {
        return Err(CommandError::input("`--need Body` is for the end of the path: an intermediary processes no Body"));
    }
    // Whoever says which ways there are lets the node go them, and so with its log (7.2, rule 3).
    let routing = (!args.route.is_empty()).then_some("routing");
    let audit = args.audit.then_some("audit");
    Ok(add_modules(node, args, own, trust)
        .with_understood_blocks(args.understand.iter().map(String::as_str))
        .with_reinserted_blocks(args.reinsert.iter().map(String::as_str))
        .with_authorized_blocks(args.allow.iter().map(String::as_str).chain(routing).chain(audit))
        .with_changes(build_changes(args)?))
}

/// All modules that there are, with the keys that there are.
fn add_modules(node: Node, args: &MeshServeArgs, own: Option<&NodeKeys>, trust: &TrustedKeys) -> Node {
    let mut node = node.with_module(Ttl).with_module(Upgrade).with_module(Validation::default()).with_module(Routing);
    let mut audit = if args.audit { Audit::starting_log() } else { Audit::default() };
    if let Some(own) = own {
        audit = audit.with_signer(own.signing_key.clone());
        if node.kind() == NodeKind::UltimateReceiver {
            node = node.with_module(Encryption::with_keys([own.decryption_key.clone()]));
        }
    }
    let usual = if args.trust.is_empty() { None } else { Some(DEFAULT_REPLAY_WINDOW) };
    let window = args.replay_window.map_or(usual, |window| (!window.0.is_zero()).then_some(window.0));
    if let Some(window) = window {
        let fresh = Freshness::within_window(SignedDuration::try_from(window).unwrap_or(SignedDuration::MAX));
        node = node.with_module(if args.require_signature { fresh } else { fresh.with_optional_id() });
    }
    if args.trust.is_empty() {
        return node.with_module(audit);
    }
    let ring = || Arc::clone(&trust.ring);
    let mut signature = if args.require_signature { Signature::required(ring()) } else { Signature::optional(ring()) };
    let mut authentication = Authentication::optional(ring());
    if let Some(own) = own {
        signature = signature.with_resigning_key(own.signing_key.clone());
        authentication = authentication.with_credential_key(own.signing_key.clone());
    }
    if args.require_signature {
        audit = audit.with_verifier(ring());
    }
    let mut authorization = Authorization::new(ring()).with_required_actions(args.need.iter().map(String::as_str));
    for (agent, actions) in &trust.allowed_actions {
        authorization = authorization.with_allowed_actions(agent, actions.iter().map(String::as_str));
    }
    node.with_module(signature).with_module(authentication).with_module(authorization).with_module(audit)
}

fn validate_block(name: &str, properties: serde_json::Map<String, Value>) -> Result<(), CommandError> {
    let fault = Header::default().set_block(name, properties).err();
    fault.map_or(Ok(()), |fault| {
        Err(CommandError::input(format!("`{name}` cannot be a header block: {}", fault.reason_text())))
    })
}

fn build_changes(args: &MeshServeArgs) -> Result<Vec<FrameChange>, CommandError> {
    let mut changes = Vec::new();
    for typed in &args.annotate {
        let bad = || {
            CommandError::input(format!("`{typed}` is no header block"))
                .with_hint("write it as NAME={\"key\": \"value\"}")
        };
        let (name, json) = typed.split_once('=').ok_or_else(bad)?;
        let Ok(Value::Object(properties)) = serde_json::from_str(json) else { return Err(bad()) };
        validate_block(name, properties.clone())?;
        if [APPLIED_BLOCK, "signature"].contains(&name) {
            return Err(CommandError::input(format!("`{name}` is the node's own to say")));
        }
        changes.push(FrameChange {
            feature: ANNOTATE_FEATURE.to_owned(),
            action: ChangeAction::SetBlock(name.to_owned(), properties),
        });
    }
    let mask = |key: &String| FrameChange {
        feature: MASK_FEATURE.to_owned(),
        action: ChangeAction::RemoveBodyChild(key.clone()),
    };
    changes.extend(args.mask.iter().map(mask));
    Ok(changes)
}

/// The nodes behind it.
pub fn build_hops(args: &MeshServeArgs, token: Option<String>) -> Result<NextHops, CommandError> {
    let limit = usize::try_from(args.max_frame.0).unwrap_or(usize::MAX);
    let manner = ClientOptions { http2: args.next_http2, token, timeout: args.timeout.0, max_response_bytes: limit };
    let client = |address: NodeAddress| {
        Client::new(address, manner.clone()).map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))
    };
    let mut ways = BTreeMap::new();
    for typed in &args.route {
        let bad = |problem: String| CommandError::input(format!("`{typed}` is no way to a node: {problem}"));
        // A URI may have a `=` of its own; the URL's beginning tells them apart.
        let split = ["=http://", "=https://"].iter().find_map(|mark| typed.find(mark));
        let (uri, url) = split
            .map(|place| (&typed[..place], &typed[place + 1..]))
            .ok_or_else(|| bad("it is written as URI=URL".to_owned()))?;
        if !is_iri(uri) {
            return Err(bad(format!("`{uri}` is no absolute URI")));
        }
        ways.insert(uri.to_owned(), client(url.parse().map_err(bad)?)?);
    }
    Ok(NextHops { default_hop: args.forward.clone().map(client).transpose()?, by_uri: ways })
}
