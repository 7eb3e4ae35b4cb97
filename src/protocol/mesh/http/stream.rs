//! Streams of frames: one frame a line in, one answer a line out, in order and as they arrive.
//!
//! Answers go out while frames still come in, over HTTP/2 and chunked HTTP/1.1. An invalid line is answered with a fault, and the stream
//! continues. A frame that carries a fault has no line if its answer is empty. Must not: process a frame before the previous one is
//! answered, which keeps the order and slows the sender down.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::fault::Fault;
use super::super::rules;
use super::activity::InFlightRequest;
use super::binding::NDJSON_MEDIA_TYPE;
use super::line_decoder::{LineDecoder, StreamLine};
use super::state::ServerState;

const MAX_PENDING_ANSWERS: usize = 16;

pub(super) fn serve_stream(state: Arc<ServerState>, mut request: Request) -> Response {
    let (answers, lines) = mpsc::channel(MAX_PENDING_ANSWERS);
    let in_flight = request.extensions_mut().remove::<Option<Arc<InFlightRequest>>>();
    tokio::spawn(async move {
        tokio::select! {
            () = state.stop.cancelled() => {}
            () = answers.closed() => {}
            () = read_lines(&state, request, &answers) => {}
        }
        drop(in_flight);
    });
    let lines = futures::stream::unfold(lines, |mut lines| async {
        let line = lines.recv().await?;
        Some((Ok::<_, Infallible>(line), lines))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON_MEDIA_TYPE));
    response
}

async fn read_lines(state: &ServerState, request: Request, answers: &mpsc::Sender<Bytes>) {
    let mut body = request.into_body();
    let mut lines = LineDecoder::new(state.service.node().limits.bytes);
    loop {
        let chunk = match timeout(state.options.idle_timeout, body.frame()).await {
            Ok(Some(Ok(chunk))) => chunk.into_data().unwrap_or_default(),
            // A regular end: the last line counts, with or without a line break.
            Ok(None) => break,
            // Aborted or idle: an incomplete line is not a frame.
            Ok(Some(Err(_))) | Err(_) => return,
        };
        lines.push(&chunk);
        for line in lines.by_ref() {
            if !answer_line(state, line, answers).await {
                return;
            }
        }
    }
    if let Some(line) = lines.finish() {
        answer_line(state, line, answers).await;
    }
}

/// Answers a line. Returns false if nobody reads the answers.
async fn answer_line(state: &ServerState, line: StreamLine, answers: &mpsc::Sender<Bytes>) -> bool {
    let limit = state.service.node().limits.bytes;
    let answer = match line {
        StreamLine::TooLong => {
            let text = format!("the line has more than {limit} bytes");
            state.service.fault_response(Fault::sender(rules::LIMIT_EXCEEDED, text))
        }
        StreamLine::Complete(frame) => {
            let _permit = state.acquire_exchange().await;
            state.service.handle_frame(frame, Vec::new()).await
        }
    };
    if answer.body.is_empty() {
        return true;
    }
    let mut line = BytesMut::with_capacity(answer.body.len() + 1);
    line.put(answer.body);
    line.put_u8(b'\n');
    // A client that reads no answers must not keep the connection open forever.
    matches!(timeout(state.options.idle_timeout, answers.send(line.freeze())).await, Ok(Ok(())))
}
