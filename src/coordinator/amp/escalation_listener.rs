//! The interface through which `notify/` learns of escalations.

use futures::future::BoxFuture;
use tokio::sync::mpsc::UnboundedSender;

use crate::protocol::amp::message::AmpMessage;

/// Receives each newly written escalation.
pub trait EscalationListener: Send {
    /// Called on the writer's thread; must return quickly.
    fn on_escalation(&mut self, message: &AmpMessage);
    /// Sets the channel for warnings about notifications that failed.
    fn set_warning_sender(&mut self, _: UnboundedSender<String>) {}
    /// Waits, within limits, until everybody is notified.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}

/// Notifies nobody.
impl EscalationListener for () {
    fn on_escalation(&mut self, _: &AmpMessage) {}
}
