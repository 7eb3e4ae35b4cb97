//! Routes of the server: from a request to a frame, and from the answer to a response.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::super::fault::Fault;
use super::super::rules;
use super::activity::ConnectionActivity;
use super::attachments::Attachment;
use super::binding::{FRAME_PATH, MEDIA_TYPE, MULTIPART_RELATED, NDJSON_MEDIA_TYPE, STREAM_PATH};
use super::content_type::ContentType;
use super::node_service::describe_node;
use super::response::FrameResponse;
use super::state::ServerState;
use super::status::{NO_RESOURCE, TOO_SLOW, UNSUPPORTED_MEDIA_TYPE};
use super::{multipart, stream};

pub(super) fn router(state: &Arc<ServerState>) -> Router {
    Router::new()
        .route(FRAME_PATH, get(handle_describe).post(handle_frame))
        .route(STREAM_PATH, post(handle_stream))
        .fallback(handle_not_found)
        .method_not_allowed_fallback(handle_not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(state), check_access))
        .with_state(Arc::clone(state))
}

/// Checks access before anything else of a request is read.
async fn check_access(State(state): State<Arc<ServerState>>, mut request: Request, next: Next) -> Response {
    let activity = request.extensions().get::<Arc<ConnectionActivity>>().map(ConnectionActivity::begin_request);
    if let Err(fault) = state.check_access(request.uri(), request.headers()) {
        return frame_response(state.service.fault_response(fault));
    }
    let in_flight = activity.map(Arc::new);
    request.extensions_mut().insert(in_flight.clone());
    let response = next.run(request).await;
    drop(in_flight);
    response
}

fn frame_response(answer: FrameResponse) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    if answer.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

async fn handle_not_found(State(state): State<Arc<ServerState>>) -> Response {
    let text = format!("not found: post frames to `{FRAME_PATH}` and streams of frames to `{STREAM_PATH}`");
    frame_response(state.service.fault_response(Fault::sender(NO_RESOURCE, text)))
}

async fn handle_describe(State(state): State<Arc<ServerState>>) -> Response {
    let mut response = Response::new(Body::from(format!("{}\n", describe_node(state.service.node()))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn handle_frame(State(state): State<Arc<ServerState>>, request: Request) -> Response {
    let answer = match read_request(&state, request).await {
        Ok((frame, attachments, _permit)) => state.service.handle_frame(frame, attachments).await,
        Err(fault) => {
            let too_large = fault.subcode.as_deref() == Some(rules::LIMIT_EXCEEDED);
            let mut answer = state.service.fault_response(fault);
            if too_large {
                answer.status = StatusCode::PAYLOAD_TOO_LARGE;
            }
            answer
        }
    };
    frame_response(answer)
}

async fn handle_stream(State(state): State<Arc<ServerState>>, request: Request) -> Response {
    let fault = match parse_content_type(request.headers()) {
        Ok(content) if content.essence == NDJSON_MEDIA_TYPE => return stream::serve_stream(state, request),
        Ok(_) => media_type_fault(format!("a stream of frames must be `{NDJSON_MEDIA_TYPE}`")),
        Err(fault) => fault,
    };
    frame_response(state.service.fault_response(fault))
}

fn media_type_fault(text: String) -> Box<Fault> {
    Fault::sender(UNSUPPORTED_MEDIA_TYPE, text)
}

fn parse_content_type(headers: &HeaderMap) -> Result<ContentType, Box<Fault>> {
    let content = headers.get(CONTENT_TYPE).and_then(|value| ContentType::parse(value.to_str().ok()?));
    let content = content.ok_or_else(|| media_type_fault(format!("a frame must be `{MEDIA_TYPE}`")))?;
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        return Err(media_type_fault("a frame must not have a `Content-Encoding`".to_owned()));
    }
    Ok(content)
}

/// Reads the frame and the attachments of a request, and takes an exchange permit.
async fn read_request(
    state: &ServerState,
    request: Request,
) -> Result<(Bytes, Vec<Attachment>, OwnedSemaphorePermit), Box<Fault>> {
    let content = parse_content_type(request.headers())?;
    if !content.is_frame() && !content.is_multipart() {
        let text = format!("a frame must be `{MEDIA_TYPE}`, or `{MULTIPART_RELATED}` with attachments");
        return Err(media_type_fault(text));
    }
    let max_frame = state.service.node().limits.bytes;
    let max_attachments = state.options.max_attachment_bytes;
    let limit = if content.is_multipart() { max_frame + max_attachments } else { max_frame };
    let too_large = || Fault::sender(rules::LIMIT_EXCEEDED, format!("the message has more than {limit} bytes"));
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|declared| declared > limit as u64) {
        return Err(too_large());
    }
    let permit = state.try_acquire_exchange()?;
    let body_timeout = state.options.body_timeout;
    let body = timeout(body_timeout, Limited::new(request.into_body(), limit).collect()).await.map_err(|_| {
        Fault::sender(TOO_SLOW, format!("the message did not end within {} s", body_timeout.as_secs_f64()))
    })?;
    let body = body.map_err(|error| match error.is::<LengthLimitError>() {
        true => too_large(),
        false => Fault::sender(rules::JSON, "the message is incomplete"),
    })?;
    let body = body.to_bytes();
    let (frame, attachments) =
        if content.is_multipart() { multipart::parse(&content, &body)? } else { (body, Vec::new()) };
    if attachments.iter().map(|attachment| attachment.data.len()).sum::<usize>() > max_attachments {
        let text = format!("the attachments have more than {max_attachments} bytes");
        return Err(Fault::sender(rules::LIMIT_EXCEEDED, text));
    }
    Ok((frame, attachments, permit))
}
