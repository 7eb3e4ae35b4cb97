//! `longshore mesh send`: sends a frame or a stream of frames and prints the answers.
//!
//! Exit codes: 0 answered; 1 answered with a fault, whose reason goes to standard error; 2 invalid frame, which is not sent; 3 the node
//! cannot be reached.

use std::collections::HashSet;
use std::io::IsTerminal;
use std::path::Path;

use bytes::Bytes;
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
    ATTACHMENTS_BLOCK, Attachment, Client, ClientError, ClientOptions, LineDecoder, StreamLine, attachments_block,
};
use crate::protocol::mesh::limits::FrameLimits;
use crate::protocol::mesh::modules::authentication::authenticate;
use crate::protocol::mesh::modules::authorization::authorize;
use crate::protocol::mesh::modules::encryption::{encrypt_body, encrypt_grams};
use crate::protocol::mesh::modules::signature::sign;
use crate::protocol::mesh::syntax::is_iri;
use crate::report::text::sanitize;

pub async fn send(args: &MeshSendArgs) -> CommandResult {
    if args.stream {
        return send_stream(args, &build_client(args)?).await;
    }
    let mut frame = read_frame(&args.frame)?;
    let attachments = args.attach.iter().map(|path| read_attachment(path)).collect::<Result<Vec<_>, _>>()?;
    let mut names = HashSet::new();
    if let Some(duplicate) = attachments.iter().find(|attachment| !names.insert(attachment.cid.as_str())) {
        return Err(CommandError::input(format!("two attachments have the name `{}`", duplicate.cid))
            .with_hint("rename one of the files"));
    }
    if !attachments.is_empty() {
        frame
            .header
            .set_block(ATTACHMENTS_BLOCK, attachments_block(&attachments))
            .map_err(|fault| invalid_frame_error(&fault))?;
    }
    grant_encrypt_and_sign(&mut frame, args)?;
    if args.print {
        return print_stdout(&format!("{}\n", String::from_utf8_lossy(&frame.to_bytes())))
            .map(|()| ExitStatus::Success);
    }
    let reply = build_client(args)?.send(frame.to_bytes().into(), &attachments).await.map_err(client_error)?;
    if reply.body.is_empty() {
        // A sent fault is not answered with a frame.
        return if reply.status.is_success() {
            Ok(ExitStatus::Success)
        } else {
            Err(CommandError::new(CommandErrorKind::Unsuccessful, format!("the node answered {}", reply.status)))
        };
    }
    print_answer(&reply.body, reply.status.as_u16(), args.json)
}

fn build_client(args: &MeshSendArgs) -> Result<Client, CommandError> {
    let options = ClientOptions {
        http2: args.http2,
        token: token::load_token(args.token_file.as_deref())?,
        timeout: args.timeout.0,
        max_response_bytes: FrameLimits::default().bytes,
    };
    let address = args.to.clone().ok_or_else(|| CommandError::input("no node to send to").with_hint("add --to URL"))?;
    Client::new(address, options).map_err(client_error)
}

/// Signs last, as a signature covers the ciphertext and the grants.
fn grant_encrypt_and_sign(frame: &mut Frame, args: &MeshSendArgs) -> Result<(), CommandError> {
    let own = args.key.as_deref().map(keys::load_node_keys).transpose()?;
    let now = Timestamp::now();
    let invalid = |fault: Box<Fault>| invalid_frame_error(&fault);
    if own.is_some() && frame.header.message_id().is_none() {
        frame.header.set("messageId", Uuid::new_v4().to_string().into()).map_err(invalid)?;
    }
    if let (Some(own), false) = (&own, args.grant.is_empty()) {
        let bad = |typed: &String| {
            CommandError::input(format!("`{typed}` is not a grant")).with_hint("write it as URI=NAME or URI=NAME,NAME")
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
        authorize(frame, &own.signing_key, grants, None).map_err(invalid)?;
    }
    if let Some(path) = &args.encrypt_to {
        let trust = keys::load_trusted_keys([path.as_path()])?;
        let [recipient] = trust.recipients.as_slice() else {
            return Err(CommandError::input(format!(
                "`{}` must have exactly one agent, with a `seal` key",
                path.display()
            )));
        };
        let encrypted = encrypt_body(frame, recipient).and_then(|()| encrypt_grams(frame, recipient));
        encrypted.map_err(|error| CommandError::from_error(CommandErrorKind::Input, &error))?;
    }
    if let Some(own) = &own {
        authenticate(frame, &own.signing_key, &Uuid::new_v4().to_string(), now).map_err(invalid)?;
        sign(frame, &own.signing_key, now).map_err(invalid)?;
    }
    Ok(())
}

/// Prints an answer. `Unsuccessful` if it is a fault.
fn print_answer(content: &[u8], status: u16, on_one_line: bool) -> CommandResult {
    let answer = Frame::parse(content, &FrameLimits::default()).map_err(|fault| {
        CommandError::machinery(format!("the node answered with {status} and no valid frame: {}", fault.reason_text()))
            .with_hint("is there a mesh node at that URL?")
    })?;
    if on_one_line {
        print_stdout(&format!("{}\n", String::from_utf8_lossy(&answer.to_bytes())))?;
    } else {
        let pretty = serde_json::to_string_pretty(&answer.to_json()).unwrap_or_default();
        // Frames are untrusted: sanitize them for a terminal, but not for a file.
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

/// Sends lines as they are read, and prints answers as they arrive.
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
                    if !line.ends_with(b"\n") {
                        line.push(b'\n');
                    }
                    if sender.send(line.into()).await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }));
    let outgoing =
        futures::stream::unfold(receiver, |mut lines| async { lines.recv().await.map(|line| (line, lines)) });
    let (status, mut chunks) = client.stream(outgoing).await.map_err(client_error)?;
    let mut lines = LineDecoder::new(FrameLimits::default().bytes);
    let mut exit_code = ExitStatus::Success;
    loop {
        let chunk = chunks.next().await.transpose().map_err(client_error)?;
        let ended = chunk.is_none();
        lines.push(&chunk.unwrap_or_default());
        while let Some(line) = lines.next().or_else(|| ended.then(|| lines.finish()).flatten()) {
            let StreamLine::Complete(line) = line else {
                return Err(CommandError::machinery("an answer exceeds the maximum size of a frame"));
            };
            exit_code = exit_code.max(print_answer(&line, status.as_u16(), true)?);
        }
        if ended {
            break;
        }
    }
    if reading.is_finished() {
        reading.await.map_err(|error| CommandError::machinery("cannot read the frames").with_cause(&error))??;
    }
    Ok(exit_code)
}

fn read_frame(path: &Path) -> Result<Frame, CommandError> {
    let limits = FrameLimits::default();
    let bytes = read_limited(path, limits.bytes)
        .map_err(|error| CommandError::input(format!("cannot read `{}`", path.display())).with_cause(&error))?;
    Frame::parse(&bytes, &limits).map_err(|fault| invalid_frame_error(&fault))
}

fn invalid_frame_error(fault: &Fault) -> CommandError {
    CommandError::input(format!("not sent, as the frame is invalid: {}", fault.reason_with_pointer()))
}

/// Reads a file as an attachment under its sanitized name.
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
