//! `longshore mesh send`: one frame and its answer, or a stream of them.
//!
//! Exit codes: 0 it was answered; 1 a fault came back, with its reason on standard error; 2 what was to be sent is no frame; 3 the
//! node cannot be reached. A frame that breaks a rule of the protocol is not sent.

use std::io::{IsTerminal, Read};
use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::io::AsyncBufReadExt;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::args::MeshSendArgs;
use super::{keys, token};
use crate::cli::error::{Kind, Shown};
use crate::cli::{Outcome, remark, say};
use crate::protocol::mesh::fault::Fault;
use crate::protocol::mesh::frame::Frame;
use crate::protocol::mesh::http::{
    ATTACHMENTS, Attachment, Client, ClientError, Line, Lines, Manner, attachments_block,
};
use crate::protocol::mesh::limits::Limits;
use crate::protocol::mesh::modules::authentication::authenticate;
use crate::protocol::mesh::modules::authorization::authorize;
use crate::protocol::mesh::modules::encryption::{seal_body, seal_grams};
use crate::protocol::mesh::modules::signature::sign;
use crate::protocol::mesh::role::is_iri;
use crate::report::text::sanitize;

/// Sends.
pub async fn send(args: &MeshSendArgs) -> Outcome {
    if args.stream {
        return stream(args, &client(args)?).await;
    }
    let mut frame = frame(&args.frame)?;
    let attachments = args.attach.iter().map(|path| attachment(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = attachments
        .iter()
        .enumerate()
        .find(|(place, one)| attachments[..*place].iter().any(|other| other.cid == one.cid))
    {
        return Err(
            Shown::input(format!("two attachments would be called `{}`", twice.1.cid)).hint("rename one of the files")
        );
    }
    if !attachments.is_empty() {
        frame.header.set_block(ATTACHMENTS, attachments_block(&attachments)).map_err(|fault| refused(&fault))?;
    }
    protect(&mut frame, args)?;
    if args.print {
        return say(&format!("{}\n", String::from_utf8_lossy(&frame.to_bytes()))).map(|()| 0);
    }
    let reply = client(args)?.send(frame.to_bytes().into(), &attachments).await.map_err(shown)?;
    if reply.content.is_empty() {
        // A fault was told, and is not answered with a frame.
        return if reply.status.is_success() {
            Ok(0)
        } else {
            Err(Shown::new(Kind::Unsuccessful, format!("the node answered {}", reply.status)))
        };
    }
    tell(&reply.content, reply.status.as_u16(), args.json)
}

fn client(args: &MeshSendArgs) -> Result<Client, Shown> {
    let manner = Manner {
        http2: args.http2,
        token: token::token(args.token_file.as_deref())?,
        patience: args.timeout.0,
        limit: Limits::default().bytes,
    };
    let address = args.to.clone().ok_or_else(|| Shown::input("there is no node to send to").hint("add --to URL"))?;
    Client::new(address, manner).map_err(shown)
}

/// Grants, seals, presents and signs, in this order: what is signed is what travels.
fn protect(frame: &mut Frame, args: &MeshSendArgs) -> Result<(), Shown> {
    let own = args.key.as_deref().map(keys::own_of).transpose()?;
    let now = Timestamp::now();
    let no_frame = |fault: Box<Fault>| refused(&fault);
    if own.is_some() && frame.header.message_id().is_none() {
        frame.header.set("messageId", Uuid::new_v4().to_string().into()).map_err(no_frame)?;
    }
    if let (Some(own), false) = (&own, args.grant.is_empty()) {
        let bad = |typed: &String| {
            Shown::input(format!("`{typed}` is no grant")).hint("write it as URI=NAME or URI=NAME,NAME")
        };
        let split = |typed: &String| {
            let (agent, names) = typed.rsplit_once('=').ok_or_else(|| bad(typed))?;
            let names: Vec<String> = names.split(',').map(str::to_owned).collect();
            if is_iri(agent) { Ok((agent.to_owned(), names)) } else { Err(bad(typed)) }
        };
        let grants = args.grant.iter().map(split).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<Vec<&str>> =
            grants.iter().map(|(_, names)| names.iter().map(String::as_str).collect()).collect();
        let grants = grants.iter().zip(&names).map(|((agent, _), names)| (agent.as_str(), names.as_slice()));
        authorize(frame, &own.sign, grants, None).map_err(no_frame)?;
    }
    if let Some(path) = &args.encrypt_to {
        let trust = keys::trust_of([path.as_path()])?;
        let [recipient] = trust.recipients.as_slice() else {
            return Err(Shown::input(format!("`{}` must have one agent, with a key to seal by", path.display())));
        };
        let sealed = seal_body(frame, recipient).and_then(|()| seal_grams(frame, recipient));
        sealed.map_err(|error| Shown::of(Kind::Input, &error))?;
    }
    if let Some(own) = &own {
        authenticate(frame, &own.sign, &Uuid::new_v4().to_string(), now).map_err(no_frame)?;
        sign(frame, &own.sign, now).map_err(no_frame)?;
    }
    Ok(())
}

/// Prints an answer: 0, or 1 if it is a fault.
fn tell(content: &[u8], status: u16, as_it_came: bool) -> Outcome {
    let answer = Frame::parse(content, &Limits::default()).map_err(|fault| {
        Shown::machinery(format!("the node answered with {status} and something that is no frame: {}", fault.text()))
            .hint("is there a mesh node at that URL?")
    })?;
    if as_it_came {
        say(&format!("{}\n", String::from_utf8_lossy(&answer.to_bytes())))?;
    } else {
        let pretty = serde_json::to_string_pretty(&answer.to_json()).unwrap_or_default();
        // A terminal is not driven by what a frame says; a file gets it as it is.
        let lines =
            pretty.lines().map(|line| if std::io::stdout().is_terminal() { sanitize(line) } else { line.to_owned() });
        say(&lines.map(|line| line + "\n").collect::<String>())?;
    }
    match Fault::read(&answer) {
        Ok(None) => Ok(0),
        Ok(Some(fault)) => {
            let from = fault.node.as_ref().map_or(String::new(), |node| format!(" (from {})", sanitize(node)));
            remark(&format!("fault: {}{from}", sanitize(&fault.to_string())));
            Ok(1)
        }
        Err(broken) => {
            remark(&format!("fault: {}", sanitize(broken.text())));
            Ok(1)
        }
    }
}

/// Frames go out as they are written, and answers are printed as they come.
async fn stream(args: &MeshSendArgs, client: &Client) -> Outcome {
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(16);
    let path = args.frame.clone();
    let is_standard = path.as_os_str() == "-";
    let reading: AbortOnDropHandle<Result<(), Shown>> = AbortOnDropHandle::new(tokio::spawn(async move {
        let source: Box<dyn tokio::io::AsyncRead + Send + Unpin> = if is_standard {
            Box::new(tokio::io::stdin())
        } else {
            let opened = tokio::fs::File::open(&path).await;
            Box::new(
                opened.map_err(|error| Shown::input(format!("cannot read `{}`", path.display())).caused_by(&error))?,
            )
        };
        let mut source = tokio::io::BufReader::new(source);
        loop {
            let mut line = Vec::new();
            let count = source.read_until(b'\n', &mut line).await;
            match count.map_err(|error| Shown::input("cannot read the frames").caused_by(&error))? {
                0 => return Ok(()),
                _ => {
                    let mut whole = BytesMut::from(line.as_slice());
                    if !line.ends_with(b"\n") {
                        whole.put_u8(b'\n');
                    }
                    if sender.send(whole.freeze()).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }));
    let outgoing =
        futures::stream::unfold(receiver, |mut lines| async { lines.recv().await.map(|line| (line, lines)) });
    let (status, mut pieces) = client.stream(outgoing).await.map_err(shown)?;
    let mut lines = Lines::new(Limits::default().bytes);
    let mut worst = 0;
    loop {
        let piece = pieces.next().await.transpose().map_err(shown)?;
        let over = piece.is_none();
        lines.push(&piece.unwrap_or_default());
        while let Some(line) = lines.next().or_else(|| over.then(|| lines.rest()).flatten()) {
            let Line::Whole(line) = line else { return Err(Shown::machinery("a line of the answer is too long")) };
            worst = worst.max(tell(&line, status.as_u16(), true)?);
        }
        if over {
            break;
        }
    }
    if reading.is_finished() {
        reading.await.map_err(|error| Shown::machinery("the frames cannot be read").caused_by(&error))??;
    }
    Ok(worst)
}

fn frame(path: &Path) -> Result<Frame, Shown> {
    let mut bytes = Vec::new();
    let limits = Limits::default();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limits.bytes as u64 + 1).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limits.bytes as u64 + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| Shown::input(format!("cannot read `{}`", path.display())).caused_by(&error))?;
    Frame::parse(&bytes, &limits).map_err(|fault| refused(&fault))
}

fn refused(fault: &Fault) -> Shown {
    let place = fault.pointer().filter(|pointer| !pointer.is_empty()).map(|pointer| format!(", at `{pointer}`"));
    Shown::input(format!("not sent, as it is no frame: {}{}", fault.text(), place.unwrap_or_default()))
}

/// A file that is sent along: its name is what the frame calls it.
fn attachment(path: &Path) -> Result<Attachment, Shown> {
    let data = std::fs::read(path)
        .map_err(|error| Shown::input(format!("cannot read `{}`", path.display())).caused_by(&error))?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("attachment");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let cid = name.chars().map(plain).take(200).collect();
    Ok(Attachment { cid, media_type: "application/octet-stream".to_owned(), data: data.into() })
}

fn shown(error: ClientError) -> Shown {
    let kind = match error {
        ClientError::Token | ClientError::Request(_) => Kind::Input,
        _ => Kind::Machinery,
    };
    Shown::of(kind, &error)
}
