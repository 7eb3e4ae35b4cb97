//! `longshore mesh serve`: a node of the mesh, until a signal ends it.
//!
//! The first signal lets what is being answered come to its end, for two seconds; a second one ends it at once.

use std::path::PathBuf;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::args::MeshServeArgs;
use super::{keys, node, token};
use crate::cli::error::Shown;
use crate::cli::{Outcome, remark, say};
use crate::protocol::mesh::http::{FRAME_PATH, Handler, Server, Station, Terms};
use crate::protocol::mesh::node::Place;

/// Serves.
pub async fn serve(args: &MeshServeArgs) -> Outcome {
    let token = token::token(args.token_file.as_deref())?;
    if !args.listen.ip().is_loopback() && token.is_none() {
        return Err(Shown::input(format!(
            "`{}` can be reached from other machines, and there is no token",
            args.listen
        ))
        .hint(format!("put one into a file for --token-file, or into {}; or listen on 127.0.0.1", token::VARIABLE)));
    }
    let next_token = args.next_token_file.as_deref().map(|file| token::token(Some(file))).transpose()?.flatten();
    let hops = node::hops(args, next_token)?;
    // All that is wrong with what was typed is told before anything listens.
    let own = args.key.as_deref().map(keys::own_of).transpose()?;
    let trust = keys::trust_of(args.trust.iter().map(PathBuf::as_path))?;
    let uri = args.uri.as_deref().or(own.as_ref().map(|own| own.sign.agent()));
    let node = |url: &str| node::node(args, uri.unwrap_or(url), own.as_ref(), &trust);
    node("http://127.0.0.1/mesh")?;
    if let Some(folder) = &args.attachments {
        std::fs::create_dir_all(folder).map_err(|error| {
            Shown::input(format!("cannot make the folder `{}`", folder.display())).caused_by(&error)
        })?;
    }
    let machinery = |what: String| move |error| Shown::machinery(what).caused_by(&error);
    let listener =
        TcpListener::bind(args.listen).await.map_err(machinery(format!("cannot listen at `{}`", args.listen)))?;
    let address = listener.local_addr().map_err(machinery("cannot tell where it listens".to_owned()))?;
    let url = format!("http://{address}{FRAME_PATH}");
    let node = node(&url)?;
    let (uri, place) = (node.uri().to_owned(), node.place());
    let mut station = Station::new(node, hops);
    if let Some(command) = &args.handler {
        let answer = usize::try_from(args.max_frame.0).unwrap_or(usize::MAX);
        let hidden = vec![token::VARIABLE.to_owned()];
        station = station.handled_by(Handler { command: command.clone(), limit: args.timeout.0, answer, hidden });
    }
    if let Some(folder) = &args.attachments {
        station = station.keeping_attachments(folder.clone());
    }
    let terms = Terms {
        token,
        attachments: usize::try_from(args.max_attachments.0).unwrap_or(usize::MAX),
        head: args.patience.0,
        body: args.patience.0 * 6,
        ..Terms::default()
    };
    let stop = CancellationToken::new();
    let mut signals = Signals::new().map_err(machinery("cannot listen for signals".to_owned()))?;
    if args.json {
        say(&format!(
            "{}\n",
            json!({"listening": address.to_string(), "url": url, "uri": uri, "pid": std::process::id()})
        ))?;
    } else {
        let what = match place {
            Place::Ultimate => "ultimate receiver",
            Place::Forwarding => "forwarding intermediary",
            Place::Active => "active intermediary",
        };
        remark(&format!("{what} {uri}, at {url}"));
    }
    let mut serving = tokio::spawn(Server::new(station, terms, address, stop.clone()).serve(listener));
    let ended = tokio::select! {
        ended = &mut serving => ended,
        () = signals.next() => {
            stop.cancel();
            tokio::select! {
                ended = &mut serving => ended,
                () = signals.next() => return Ok(130),
            }
        }
    };
    ended.map_err(|error| Shown::machinery("the server broke").caused_by(&error))?;
    Ok(0)
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
