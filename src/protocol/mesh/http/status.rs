//! HTTP statuses of faults, and the subcodes of faults that the binding itself reports.
//!
//! The status only repeats what the fault frame says.

use hyper::StatusCode;

use super::super::fault::{Fault, FaultCode};

/// The token is missing or wrong (5.4.6 names this subcode).
pub const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";
/// The request is for another host name, or from a web page.
pub const HOST_REFUSED: &str = "HostRefused";
/// The content is neither a frame nor a frame with attachments.
pub const UNSUPPORTED_MEDIA_TYPE: &str = "MediaType";
/// Unknown path or method.
pub const NO_RESOURCE: &str = "NoResource";
/// The request did not complete in time.
pub const TOO_SLOW: &str = "TooSlow";
/// Too many exchanges at once.
pub const BUSY: &str = "Busy";
/// An attachment differs from the frame's list.
pub const ATTACHMENT: &str = "Attachment";
/// The multipart message is malformed.
pub const MULTIPART: &str = "Multipart";
/// An attachment cannot be stored.
pub const STORE_FAILED: &str = "StoreFailed";
/// The handler of an ultimate receiver failed.
pub const HANDLER_FAILED: &str = "HandlerFailed";
/// The next node does not answer in time.
pub const NEXT_HOP_UNREACHABLE: &str = "NextHopUnreachable";
/// The next node refuses this one.
pub const NEXT_HOP_REFUSED: &str = "NextHopRefused";
/// The answer of the next node is not a frame.
pub const NEXT_HOP_ANSWER: &str = "NextHopAnswer";
/// No route to the frame's destination is configured.
pub const NO_ROUTE: &str = "NoRoute";

/// The status of a fault: that of its subcode above, or else of its code.
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

/// 400 for `Sender` faults, 500 for all others.
pub(super) fn status_for_code(code: FaultCode) -> StatusCode {
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
