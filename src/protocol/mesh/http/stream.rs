//! A stream of frames: one a line in, one line an answer out, in their order and as they come.
//!
//! Called by `server.rs`. Over HTTP/2, and over HTTP/1.1 with chunks, answers go out while frames still come in. A line that is no
//! frame is a line with a fault, and the next one is taken as ever. A frame that tells a fault has no line of its own if nothing is
//! to be said to it. Must not: take the next frame before the last is answered; that is what keeps the order, and the sender waiting.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::fault::Fault;
use super::super::rules;
use super::lines::{Line, Lines};
use super::server::{InFlight, Server, streaming};
use super::station::Answer;

/// How many answers wait to be taken.
const WAITING: usize = 16;

/// Answers a stream.
pub(super) fn serve(server: Arc<Server>, mut request: Request) -> Response {
    let (answers, pieces) = mpsc::channel(WAITING);
    let in_flight = request.extensions_mut().remove::<Option<Arc<InFlight>>>();
    tokio::spawn(async move {
        let stop = server.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = answers.closed() => {}
            () = run(&server, request, &answers) => {}
        }
        drop(in_flight);
    });
    streaming(pieces)
}

async fn run(server: &Server, request: Request, answers: &mpsc::Sender<Bytes>) {
    let mut body = request.into_body();
    let mut lines = Lines::new(server.station.node().limits.bytes);
    loop {
        let piece = match timeout(server.terms.idle, body.frame()).await {
            Ok(Some(Ok(piece))) => piece.into_data().unwrap_or_default(),
            // It ended as it should: the last line counts, with its end or without.
            Ok(None) => break,
            // It broke off, or says nothing any more: half a line is no frame.
            Ok(Some(Err(_))) | Err(_) => return,
        };
        lines.push(&piece);
        for line in lines.by_ref() {
            if !answer(server, line, answers).await {
                return;
            }
        }
    }
    if let Some(line) = lines.rest() {
        answer(server, line, answers).await;
    }
}

/// Answers a line; false if nobody takes the answer.
async fn answer(server: &Server, line: Line, answers: &mpsc::Sender<Bytes>) -> bool {
    let limit = server.station.node().limits.bytes;
    let Answer { content, .. } = match line {
        Line::TooLong => {
            let text = format!("the line has more than {limit} bytes");
            server.station.refusal(Fault::sender(rules::LIMIT_EXCEEDED, text))
        }
        Line::Whole(frame) => {
            let place = server.place().await;
            let answer = server.station.take(frame, Vec::new()).await;
            drop(place);
            answer
        }
    };
    if content.is_empty() {
        return true;
    }
    let mut line = BytesMut::with_capacity(content.len() + 1);
    line.put(content);
    line.put_u8(b'\n');
    // One that takes no answers holds a connection, and not for ever.
    matches!(timeout(server.terms.idle, answers.send(line.freeze())).await, Ok(Ok(())))
}
