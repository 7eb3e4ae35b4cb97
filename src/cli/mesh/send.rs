//! `longshore mesh send`: one frame and its answer, or a stream of them.
//!
//! Exit codes: 0 it was answered; 1 a fault came back, with its reason on standard error; 2 what was to be sent is no frame; 3 the
//! node cannot be reached. A frame that breaks a rule of the protocol is not sent.

use std::io::IsTerminal;
use std::path::Path;

use bytes::{BufMut, Bytes, BytesMut};
use futures::StreamExt;
use jiff::Timestamp;
use tokio::io::AsyncBufReadExt;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::args::MeshSendArgs;
use super::{keys, token};
use crate::cli::error::{CommandError, CommandErrorKind};
use crate::cli::input::read_limited;
use crate::cli::{CommandResult, ExitStatus, print_stderr, print_stdout};
use crate::protocol::mesh::fault::Fault;
use crate::protocol::mesh::frame::Frame;
use crate::protocol::mesh::http::{
    ATTACHMENTS, Attachment, Client, ClientError, ClientOptions, LineDecoder, StreamLine, attachments_block,
};
use crate::protocol::mesh::limits::FrameLimits;
use crate::protocol::mesh::modules::authentication::authenticate;
use crate::protocol::mesh::modules::authorization::authorize;
use crate::protocol::mesh::modules::encryption::{encrypt_body, encrypt_grams};
use crate::protocol::mesh::modules::signature::sign;
use crate::protocol::mesh::role::is_iri;
use crate::report::text::sanitize;

/// Sends.
pub async fn send(args: &MeshSendArgs) -> CommandResult {
    if args.stream {
        return send_stream(args, &build_client(args)?).await;
    }
    let mut frame = read_frame(&args.frame)?;
    let attachments = args.attach.iter().map(|path| read_attachment(path)).collect::<Result<Vec<_>, _>>()?;
    if let Some(twice) = attachments
        .iter()
        .enumerate()
        .find(|(place, one)| attachments[..*place].iter().any(|other| other.cid == one.cid))
    {
        return Err(CommandError::input(format!("two attachments would be called `{}`", twice.1.cid))
            .with_hint("rename one of the files"));
    }
    if !attachments.is_empty() {
        frame
            .header
            .set_block(ATTACHMENTS, attachments_block(&attachments))
            .map_err(|fault| invalid_frame_error(&fault))?;
    }
    grant_encrypt_and_sign(&mut frame, args)?;
    if args.print {
        return print_stdout(&format!("{}\n", String::from_utf8_lossy(&frame.to_bytes())))
            .map(|()| ExitStatus::Success);
    }
    let reply = build_client(args)?.send(frame.to_bytes().into(), &attachments).await.map_err(client_error)?;
    if reply.body.is_empty() {
        // A fault was told, and is not answered with a frame.
        return if reply.status.is_success() {
            Ok(ExitStatus::Success)
        } else {
            Err(CommandError::new(CommandErrorKind::Unsuccessful, format!("the node answered {}", reply.status)))
        };
    }
    print_answer(&reply.body, reply.status.as_u16(), args.json)
}

fn build_client(args: &MeshSendArgs) -> Result<Client, CommandError> {
    let manner = ClientOptions {
        http2: args.http2,
        token: token::load_token(args.token_file.as_deref())?,
        timeout: args.timeout.0,
        max_response_bytes: FrameLimits::default().bytes,
    };
    let address =
        args.to.clone().ok_or_else(|| CommandError::input("there is no node to send to").with_hint("add --to URL"))?;
    Client::new(address, manner).map_err(client_error)
}

/// Grants, seals, presents and signs, in this order: what is signed is what travels.
fn grant_encrypt_and_sign(frame: &mut Frame, args: &MeshSendArgs) -> Result<(), CommandError> {
    let own = args.key.as_deref().map(keys::load_node_keys).transpose()?;
    let now = Timestamp::now();
    let no_frame = |fault: Box<Fault>| invalid_frame_error(&fault);
    if own.is_some() && frame.header.message_id().is_none() {
        frame.header.set("messageId", Uuid::new_v4().to_string().into()).map_err(no_frame)?;
    }
    if let (Some(own), false) = (&own, args.grant.is_empty()) {
        let bad = |typed: &String| {
            CommandError::input(format!("`{typed}` is no grant")).with_hint("write it as URI=NAME or URI=NAME,NAME")
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
        authorize(frame, &own.signing_key, grants, None).map_err(no_frame)?;
    }
    if let Some(path) = &args.encrypt_to {
        let trust = keys::load_trusted_keys([path.as_path()])?;
        let [recipient] = trust.recipients.as_slice() else {
            return Err(CommandError::input(format!(
                "`{}` must have one agent, with a key to seal by",
                path.display()
            )));
        };
        let sealed = encrypt_body(frame, recipient).and_then(|()| encrypt_grams(frame, recipient));
        sealed.map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))?;
    }
    if let Some(own) = &own {
        authenticate(frame, &own.signing_key, &Uuid::new_v4().to_string(), now).map_err(no_frame)?;
        sign(frame, &own.signing_key, now).map_err(no_frame)?;
    }
    Ok(())
}

/// Prints an answer: `Unsuccessful` if it is a fault.
fn print_answer(content: &[u8], status: u16, as_it_came: bool) -> CommandResult {
    let answer = Frame::parse(content, &FrameLimits::default()).map_err(|fault| {
        CommandError::machinery(format!(
            "the node answered with {status} and something that is no frame: {}",
            fault.reason_text()
        ))
        .with_hint("is there a mesh node at that URL?")
    })?;
    if as_it_came {
        print_stdout(&format!("{}\n", String::from_utf8_lossy(&answer.to_bytes())))?;
    } else {
        let pretty = serde_json::to_string_pretty(&answer.to_json()).unwrap_or_default();
        // A terminal is not driven by what a frame says; a file gets it as it is.
        let lines =
            pretty.lines().map(|line| if std::io::stdout().is_terminal() { sanitize(line) } else { line.to_owned() });
        print_stdout(&lines.map(|line| line + "\n").collect::<String>())?;
    }
    match Fault::from_frame(&answer) {
        Ok(None) => Ok(ExitStatus::Success),
        Ok(Some(fault)) => {
            let from = fault.node.as_ref().map_or(String::new(), |node| format!(" (from {})", sanitize(node)));
            print_stderr(&format!("fault: {}{from}", sanitize(&fault.to_string())));
            Ok(ExitStatus::Unsuccessful)
        }
        Err(broken) => {
            print_stderr(&format!("fault: {}", sanitize(broken.reason_text())));
            Ok(ExitStatus::Unsuccessful)
        }
    }
}

/// Frames go out as they are written, and answers are printed as they come.
async fn send_stream(args: &MeshSendArgs, client: &Client) -> CommandResult {
    let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(16);
    let path = args.frame.clone();
    let is_standard = path.as_os_str() == "-";
    let reading: AbortOnDropHandle<Result<(), CommandError>> = AbortOnDropHandle::new(tokio::spawn(async move {
        let source: Box<dyn tokio::io::AsyncRead + Send + Unpin> =
            if is_standard {
                Box::new(tokio::io::stdin())
            } else {
                let opened = tokio::fs::File::open(&path).await;
                Box::new(opened.map_err(|error| {
                    CommandError::input(format!("cannot read `{}`", path.display())).with_cause(&error)
                })?)
            };
        let mut source = tokio::io::BufReader::new(source);
        loop {
            let mut line = Vec::new();
            let count = source.read_until(b'\n', &mut line).await;
            match count.map_err(|error| CommandError::input("cannot read the frames").with_cause(&error))? {
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
    let (status, mut pieces) = client.stream(outgoing).await.map_err(client_error)?;
    let mut lines = LineDecoder::new(FrameLimits::default().bytes);
    let mut worst = ExitStatus::Success;
    loop {
        let piece = pieces.next().await.transpose().map_err(client_error)?;
        let over = piece.is_none();
        lines.push(&piece.unwrap_or_default());
        while let Some(line) = lines.next().or_else(|| over.then(|| lines.finish()).flatten()) {
            let StreamLine::Complete(line) = line else {
                return Err(CommandError::machinery("a line of the answer is too long"));
            };
            worst = worst.max(print_answer(&line, status.as_u16(), true)?);
        }
        if over {
            break;
        }
    }
    if reading.is_finished() {
        reading.await.map_err(|error| CommandError::machinery("the frames cannot be read").with_cause(&error))??;
    }
    Ok(worst)
}

fn read_frame(path: &Path) -> Result<Frame, CommandError> {
    let limits = FrameLimits::default();
    let bytes = read_limited(path, limits.bytes)
        .map_err(|error| CommandError::input(format!("cannot read `{}`", path.display())).with_cause(&error))?;
    Frame::parse(&bytes, &limits).map_err(|fault| invalid_frame_error(&fault))
}

fn invalid_frame_error(fault: &Fault) -> CommandError {
    let place = fault.pointer().filter(|pointer| !pointer.is_empty()).map(|pointer| format!(", at `{pointer}`"));
    CommandError::input(format!("not sent, as it is no frame: {}{}", fault.reason_text(), place.unwrap_or_default()))
}

/// A file that is sent along: its name is what the frame calls it.
fn read_attachment(path: &Path) -> Result<Attachment, CommandError> {
    let data = std::fs::read(path)
        .map_err(|error| CommandError::input(format!("cannot read `{}`", path.display())).with_cause(&error))?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("attachment");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let cid = name.chars().map(plain).take(200).collect();
    Ok(Attachment { cid, media_type: "application/octet-stream".to_owned(), data: data.into() })
}

fn client_error(error: ClientError) -> CommandError {
    let kind = match error {
        ClientError::InvalidToken | ClientError::Request(_) => CommandErrorKind::Input,
        _ => CommandErrorKind::Machinery,
    };
    CommandError::from_error(kind, &error)
}
