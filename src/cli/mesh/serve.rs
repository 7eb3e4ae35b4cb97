//! `longshore mesh serve`: runs a mesh node until a signal.
//!
//! The first signal gives open exchanges two seconds; the second one exits at once.

use std::path::PathBuf;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::args::MeshServeArgs;
use super::{keys, node, token};
use crate::cli::error::CommandError;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mesh::http::binding::FRAME_PATH;
use crate::protocol::mesh::http::{Handler, NodeService, Server, ServerOptions};

pub async fn serve(args: &MeshServeArgs) -> CommandResult {
    let token = token::load_token(args.token_file.as_deref())?;
    if !args.listen.ip().is_loopback() && token.is_none() {
        return Err(CommandError::input(format!(
            "`{}` is reachable from other machines and needs a token",
            args.listen
        ))
        .with_hint(format!("use --token-file or set {}; or listen on 127.0.0.1", token::TOKEN_ENV_VAR)));
    }
    let next_token = args.next_token_file.as_deref().map(|file| token::load_token(Some(file))).transpose()?.flatten();
    let hops = node::build_hops(args, next_token)?;
    // Report invalid arguments before listening.
    let own = args.key.as_deref().map(keys::load_node_keys).transpose()?;
    let trust = keys::load_trusted_keys(args.trust.iter().map(PathBuf::as_path))?;
    let uri = args.uri.as_deref().or(own.as_ref().map(|own| own.signing_key.agent()));
    let node = |url: &str| node::build_node(args, uri.unwrap_or(url), own.as_ref(), &trust);
    node("http://127.0.0.1/mesh")?;
    if let Some(dir) = &args.attachments {
        std::fs::create_dir_all(dir).map_err(|error| {
            CommandError::input(format!("cannot create the directory `{}`", dir.display())).with_cause(&error)
        })?;
    }
    let machinery = |what: String| move |error| CommandError::machinery(what).with_cause(&error);
    let listener =
        TcpListener::bind(args.listen).await.map_err(machinery(format!("cannot listen on `{}`", args.listen)))?;
    let address = listener.local_addr().map_err(machinery("cannot determine the listening address".to_owned()))?;
    let url = format!("http://{address}{FRAME_PATH}");
    let node = node(&url)?;
    let (uri, kind) = (node.uri().to_owned(), node.kind());
    let mut service = NodeService::new(node, hops);
    if let Some(command) = &args.handler {
        service = service.with_handler(Handler {
            command: command.clone(),
            timeout: args.timeout.0,
            max_output_bytes: args.max_frame_bytes(),
            removed_env: vec![token::TOKEN_ENV_VAR.to_owned()],
        });
    }
    if let Some(dir) = &args.attachments {
        service = service.with_attachment_dir(dir.clone());
    }
    let options = ServerOptions {
        token,
        max_attachment_bytes: usize::try_from(args.max_attachments.0).unwrap_or(usize::MAX),
        header_timeout: args.patience.0,
        body_timeout: args.patience.0 * 6,
        ..ServerOptions::default()
    };
    let stop = CancellationToken::new();
    let mut signals = ServeSignals::new().map_err(machinery("cannot listen for signals".to_owned()))?;
    if args.json {
        print_stdout(&format!(
            "{}\n",
            json!({"listening": address.to_string(), "url": url, "uri": uri, "pid": std::process::id()})
        ))?;
    } else {
        print_stderr(&format!("{kind} {uri}, at {url}"));
    }
    let mut serving = tokio::spawn(Server::new(service, options, address, stop.clone()).serve(listener));
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = signals.recv() => {
            stop.cancel();
            tokio::select! {
                ended = &mut serving => ended,
                () = signals.recv() => return Ok(ExitStatus::Interrupted),
            }
        }
    };
    ended.map_err(|error| CommandError::machinery("the server failed").with_cause(&error))?;
    Ok(ExitStatus::Success)
}

struct ServeSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ServeSignals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
