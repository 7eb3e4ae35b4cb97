//! Builds a node and its next hops from the arguments of `longshore mesh serve`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::Value;

use super::args::MeshServeArgs;
use super::keys::{NodeKeys, TrustedKeys};
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::protocol::mesh::change::{APPLIED_BLOCK, ChangeAction, FrameChange};
use crate::protocol::mesh::frame::FrameHeader;
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
use crate::protocol::mesh::syntax::is_iri;

/// Features of an active intermediary.
const ANNOTATE_FEATURE: &str = "urn:longshore:mesh:feature:annotate";
const MASK_FEATURE: &str = "urn:longshore:mesh:feature:mask";

/// Default with trusted agents.
const DEFAULT_REPLAY_WINDOW: Duration = Duration::from_secs(300);

fn node_kind(args: &MeshServeArgs) -> Result<NodeKind, CommandError> {
    let active = args.active || !args.annotate.is_empty() || !args.mask.is_empty();
    match (args.forward.is_some() || !args.route.is_empty(), active) {
        (false, false) => Ok(NodeKind::UltimateReceiver),
        (true, false) => Ok(NodeKind::ForwardingIntermediary),
        (true, true) => Ok(NodeKind::ActiveIntermediary),
        (false, true) => Err(CommandError::input("an active intermediary needs a next node")
            .with_hint("add --forward URL or --route URI=URL")),
    }
}

/// Refuses values with which a node could not answer anything.
fn validate_args(args: &MeshServeArgs) -> Result<(), CommandError> {
    let zero = |flag: &str| CommandError::input(format!("`{flag}` must be greater than 0"));
    for (flag, time) in [("--timeout", &args.timeout), ("--patience", &args.patience)] {
        if time.0.is_zero() {
            return Err(zero(flag));
        }
    }
    if args.max_frame.0 == 0 {
        return Err(zero("--max-frame"));
    }
    if args.handler.as_deref().is_some_and(|command| command.trim().is_empty()) {
        return Err(CommandError::input("`--handler` must not be empty"));
    }
    Ok(())
}

pub fn build_node(
    args: &MeshServeArgs,
    uri: &str,
    own: Option<&NodeKeys>,
    trust: &TrustedKeys,
) -> Result<Node, CommandError> {
    validate_args(args)?;
    let bad = |error| CommandError::from_error(CommandErrorKind::Input, &error);
    let mut node = Node::new(uri, node_kind(args)?).map_err(bad)?;
    let bytes = args.max_frame_bytes();
    let text = bytes.min(FrameLimits::default().text);
    node = node.with_limits(FrameLimits { bytes, text, ..FrameLimits::default() });
    for role in &args.role {
        let role = match role.split_once('=').filter(|(token, iri)| !token.contains(':') && is_iri(iri)) {
            Some((token, iri)) => {
                node = node.with_role_token(token, iri).map_err(bad)?;
                token
            }
            None => role,
        };
        node = node.with_role(role).map_err(bad)?;
    }
    let needed_blocks = args.need.iter().filter(|name| *name != BODY_ACTION);
    for name in [&args.understand, &args.reinsert, &args.allow].into_iter().flatten().chain(needed_blocks) {
        validate_block(name, serde_json::Map::new())?;
    }
    if let Some(name) = args.need.iter().find(|name| !is_covered_by_signature(name)) {
        return Err(CommandError::input(format!(
            "`--need {name}` is not possible: every node on the path may change the block"
        )));
    }
    if let Some(own) = own.filter(|own| own.signing_key.agent() != uri) {
        return Err(CommandError::input(format!(
            "the key belongs to `{}`, but the node is `{uri}`",
            own.signing_key.agent()
        )));
    }
    if own.is_some() && args.trust.is_empty() && !args.audit && node.kind() != NodeKind::UltimateReceiver {
        return Err(CommandError::input("an intermediary cannot use a key without trusted agents")
            .with_hint("add --trust FILE, so that it verifies frames before it adds its credential or signs again"));
    }
    if args.need.iter().any(|name| name == BODY_ACTION) && node.kind() != NodeKind::UltimateReceiver {
        return Err(CommandError::input("`--need Body` is not possible: an intermediary processes no Body"));
    }
    // Configuring routes or the audit log authorizes the node to process the blocks (7.2, rule 3).
    let routing = (!args.route.is_empty()).then_some("routing");
    let audit = args.audit.then_some("audit");
    Ok(add_modules(node, args, own, trust)
        .with_understood_blocks(args.understand.iter().map(String::as_str))
        .with_reinserted_blocks(args.reinsert.iter().map(String::as_str))
        .with_authorized_blocks(args.allow.iter().map(String::as_str).chain(routing).chain(audit))
        .with_changes(build_changes(args)?))
}

/// Adds all modules for which there are keys.
fn add_modules(node: Node, args: &MeshServeArgs, own: Option<&NodeKeys>, trust: &TrustedKeys) -> Node {
    let mut node = node.with_module(Ttl).with_module(Upgrade).with_module(Validation::default()).with_module(Routing);
    let mut audit = if args.audit { Audit::starting_log() } else { Audit::default() };
    if let Some(own) = own {
        audit = audit.with_signer(own.signing_key.clone());
        if node.kind() == NodeKind::UltimateReceiver {
            node = node.with_module(Encryption::with_keys([own.decryption_key.clone()]));
        }
    }
    let default_window = if args.trust.is_empty() { None } else { Some(DEFAULT_REPLAY_WINDOW) };
    let window = args.replay_window.map_or(default_window, |window| (!window.0.is_zero()).then_some(window.0));
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
    let fault = FrameHeader::default().set_block(name, properties).err();
    fault.map_or(Ok(()), |fault| {
        Err(CommandError::input(format!("`{name}` is not a valid header block: {}", fault.reason_text())))
    })
}

fn build_changes(args: &MeshServeArgs) -> Result<Vec<FrameChange>, CommandError> {
    let mut changes = Vec::new();
    for typed in &args.annotate {
        let bad = || {
            CommandError::input(format!("`{typed}` is not a header block"))
                .with_hint("write it as NAME={\"key\": \"value\"}")
        };
        let (name, json) = typed.split_once('=').ok_or_else(bad)?;
        let Ok(Value::Object(properties)) = serde_json::from_str(json) else { return Err(bad()) };
        validate_block(name, properties.clone())?;
        if [APPLIED_BLOCK, "signature"].contains(&name) {
            return Err(CommandError::input(format!("`{name}` is reserved for the node itself")));
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

pub fn build_hops(args: &MeshServeArgs, token: Option<String>) -> Result<NextHops, CommandError> {
    let max_response_bytes = args.max_frame_bytes();
    let options = ClientOptions { http2: args.next_http2, token, timeout: args.timeout.0, max_response_bytes };
    let client = |address: NodeAddress| {
        Client::new(address, options.clone()).map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))
    };
    let mut routes = BTreeMap::new();
    for typed in &args.route {
        let bad = |problem: String| CommandError::input(format!("`{typed}` is not a route: {problem}"));
        // The URI may contain `=`, so split before the URL's scheme.
        let split = ["=http://", "=https://"].iter().find_map(|mark| typed.find(mark));
        let (uri, url) = split
            .map(|index| (&typed[..index], &typed[index + 1..]))
            .ok_or_else(|| bad("write it as URI=URL".to_owned()))?;
        if !is_iri(uri) {
            return Err(bad(format!("`{uri}` is not an absolute URI")));
        }
        routes.insert(uri.to_owned(), client(url.parse().map_err(bad)?)?);
    }
    Ok(NextHops { default_hop: args.forward.clone().map(client).transpose()?, by_uri: routes })
}
