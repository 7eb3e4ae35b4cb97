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
use super::line_decoder::{LineDecoder, StreamLine};
use super::node_service::NodeResponse;
use super::server::{InFlightRequest, Server, stream_response};

/// How many answers wait to be taken.
const MAX_PENDING_ANSWERS: usize = 16;

/// Answers a stream.
pub(super) fn serve_stream(server: Arc<Server>, mut request: Request) -> Response {
    let (answers, pieces) = mpsc::channel(MAX_PENDING_ANSWERS);
    let in_flight = request.extensions_mut().remove::<Option<Arc<InFlightRequest>>>();
    tokio::spawn(async move {
        let stop = server.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            () = answers.closed() => {}
            () = read_lines(&server, request, &answers) => {}
        }
        drop(in_flight);
    });
    stream_response(pieces)
}

async fn read_lines(server: &Server, request: Request, answers: &mpsc::Sender<Bytes>) {
    let mut body = request.into_body();
    let mut lines = LineDecoder::new(server.service.node().limits.bytes);
    loop {
        let piece = match timeout(server.options.idle_timeout, body.frame()).await {
            Ok(Some(Ok(piece))) => piece.into_data().unwrap_or_default(),
            // It ended as it should: the last line counts, with its end or without.
            Ok(None) => break,
            // It broke off, or says nothing any more: half a line is no frame.
            Ok(Some(Err(_))) | Err(_) => return,
        };
        lines.push(&piece);
        for line in lines.by_ref() {
            if !answer_line(server, line, answers).await {
                return;
            }
        }
    }
    if let Some(line) = lines.finish() {
        answer_line(server, line, answers).await;
    }
}

/// Answers a line; false if nobody takes the answer.
async fn answer_line(server: &Server, line: StreamLine, answers: &mpsc::Sender<Bytes>) -> bool {
    let limit = server.service.node().limits.bytes;
    let NodeResponse { body: content, .. } = match line {
        StreamLine::TooLong => {
            let text = format!("the line has more than {limit} bytes");
            server.service.fault_response(Fault::sender(rules::LIMIT_EXCEEDED, text))
        }
        StreamLine::Complete(frame) => {
            let place = server.acquire_exchange().await;
            let answer = server.service.handle_frame(frame, Vec::new()).await;
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
    matches!(timeout(server.options.idle_timeout, answers.send(line.freeze())).await, Ok(Ok(())))
}
