//! What a fault is in HTTP, and the faults that HTTP itself gives occasion to.
//!
//! Used by the rest of `http/`. Must not: change a fault; the status repeats what the fault frame says, for those that look no further.

use hyper::StatusCode;

use super::super::fault::{Fault, FaultCode};

/// The token is missing or not the one (5.4.6 names this subcode).
pub const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";
/// The request came for a name that this node is not known by, or from a web page.
pub const HOST_REFUSED: &str = "HostRefused";
/// The content is neither a frame nor a frame with attachments.
pub const UNSUPPORTED_MEDIA_TYPE: &str = "MediaType";
/// There is nothing at that path, or it takes another method.
pub const NO_RESOURCE: &str = "NoResource";
/// The request did not come to an end in time.
pub const TOO_SLOW: &str = "TooSlow";
/// The node has as much to do as it takes.
pub const BUSY: &str = "Busy";
/// An attachment is not what the frame says.
pub const ATTACHMENT: &str = "Attachment";
/// The parts of a multipart message cannot be told apart.
pub const MULTIPART: &str = "Multipart";
/// An attachment cannot be kept.
pub const STORE_FAILED: &str = "StoreFailed";
/// The program behind an ultimate receiver failed.
pub const HANDLER_FAILED: &str = "HandlerFailed";
/// The next node does not answer, or not in time.
pub const NEXT_HOP_UNREACHABLE: &str = "NextHopUnreachable";
/// The next node does not take anything from this one.
pub const NEXT_HOP_REFUSED: &str = "NextHopRefused";
/// What the next node answers is no frame.
pub const NEXT_HOP_ANSWER: &str = "NextHopAnswer";
/// Nobody said how to get to where the frame wants to go.
pub const NO_ROUTE: &str = "NoRoute";

/// The status that goes with a fault. An own status of the faults above; otherwise 400 for what the sender has to mend and 500 for the rest.
pub fn status_for_fault(fault: &Fault) -> StatusCode {
    let own = match fault.subcode.as_deref() {
        Some(AUTHENTICATION_FAILED) => StatusCode::UNAUTHORIZED,
        Some(HOST_REFUSED) => StatusCode::FORBIDDEN,
        Some(UNSUPPORTED_MEDIA_TYPE) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Some(NO_RESOURCE) => StatusCode::NOT_FOUND,
        Some(TOO_SLOW) => StatusCode::REQUEST_TIMEOUT,
        Some(BUSY) => StatusCode::SERVICE_UNAVAILABLE,
        _ => return status_for_code(fault.code),
    };
    let class = if own.is_client_error() { FaultCode::Sender } else { FaultCode::Receiver };
    if fault.code == class { own } else { status_for_code(fault.code) }
}

fn status_for_code(code: FaultCode) -> StatusCode {
    if code == FaultCode::Sender { StatusCode::BAD_REQUEST } else { StatusCode::INTERNAL_SERVER_ERROR }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_4_failure_handling_every_fault_code_has_a_status() {
        for code in FaultCode::ALL {
            let wanted = if code == FaultCode::Sender { 400 } else { 500 };
            assert_eq!(status_for_fault(&Fault::new(code, "x")).as_u16(), wanted, "{code:?}");
        }
        for (subcode, wanted) in
            [(AUTHENTICATION_FAILED, 401), (HOST_REFUSED, 403), (NO_RESOURCE, 404), (TOO_SLOW, 408)]
        {
            assert_eq!(status_for_fault(&Fault::sender(subcode, "x")).as_u16(), wanted, "{subcode}");
        }
        assert_eq!(status_for_fault(&Fault::sender(UNSUPPORTED_MEDIA_TYPE, "x")).as_u16(), 415);
        assert_eq!(status_for_fault(&Fault::receiver(BUSY, "x")).as_u16(), 503);
        assert_eq!(status_for_fault(&Fault::receiver(AUTHENTICATION_FAILED, "x")).as_u16(), 500);
    }
}
