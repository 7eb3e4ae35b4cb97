//! The settings as `doctor` shows them.

use super::{Settings, Sourced};
use crate::cli::amounts::{Size, Span, SpanOrOff};
use crate::cli::variable::Variable;
use crate::coordinator::notify::NotifyUrl;

impl Settings {
    /// Every setting as `doctor` shows it: name, value, source. Values of environment variables are not among them.
    pub fn rows(&self) -> Vec<(String, String, String)> {
        fn format_row<T>(name: &str, sourced: &Sourced<T>, show: impl Fn(&T) -> String) -> (String, String, String) {
            (name.to_owned(), show(&sourced.value), sourced.source.to_string())
        }
        let or = |what: &'static str| move |value: &Option<String>| value.clone().unwrap_or_else(|| what.to_owned());
        let mut rows = vec![
            format_row("agent", &self.agent, or("none")),
            format_row("image", &self.image, String::clone),
            format_row("max", &self.max, |max| max.map_or("automatic".to_owned(), |max| max.to_string())),
            format_row("fan_out", &self.fan_out, |what| format!("{what:?}").to_lowercase()),
            format_row("network", &self.network, String::clone),
            format_row(
                "memory",
                &self.memory,
                |size| if size.0 == 0 { "no limit".to_owned() } else { size.to_string() },
            ),
            format_row("reserve_memory", &self.reserve_memory, Size::to_string),
            format_row("reserve_disk", &self.reserve_disk, Size::to_string),
            format_row("memory_budget", &self.memory_budget, |size| {
                if size.0 == 0 { "nothing".to_owned() } else { size.to_string() }
            }),
            format_row("cpus", &self.cpus, |cpus| if cpus.0 == 0 { "no limit".to_owned() } else { cpus.to_string() }),
            format_row("timeout", &self.timeout, Span::to_string),
            format_row("idle_timeout", &self.idle_timeout, SpanOrOff::to_string),
            format_row("retries", &self.retries, u32::to_string),
            format_row(
                "verify",
                &self.verify,
                |list| if list.is_empty() { "none".to_owned() } else { list.join("; ") },
            ),
            format_row("grace", &self.grace, Span::to_string),
            format_row("keep", &self.keep, bool::to_string),
            format_row("mailbox", &self.mailbox, |on| {
                on.map_or("as the tasks files say".to_owned(), |on| on.to_string())
            }),
            format_row("review", &self.review, or("none")),
            format_row("review_criteria", &self.review_criteria, |list| {
                if list.is_empty() { "none".to_owned() } else { list.join("; ") }
            }),
            format_row("review_rounds", &self.review_rounds, u32::to_string),
            format_row("notify", &self.notify, or("none")),
            format_row("notify_url", &self.notify_url, |url| {
                url.as_deref().map_or("none".to_owned(), |url| {
                    NotifyUrl::parse(url).map_or("not a URL".to_owned(), |url| url.to_string())
                })
            }),
            format_row("amp.ack_dispatch", &self.amp.ack_dispatch, Span::to_string),
            format_row("amp.ack_result", &self.amp.ack_result, Span::to_string),
            format_row("amp.ack_request", &self.amp.ack_request, Span::to_string),
            format_row("amp.ack_verdict", &self.amp.ack_verdict, Span::to_string),
            format_row("amp.heartbeat", &self.amp.heartbeat, Span::to_string),
            format_row("git.name", &self.git_name, or("that of the repository")),
            format_row("git.email", &self.git_email, or("that of the repository")),
        ];
        rows.extend(self.env.iter().map(|variable| format_row("env", variable, Variable::to_string)));
        rows.extend(
            self.agents
                .iter()
                .map(|(name, agent)| format_row(&format!("agents.{name}"), agent, |agent| agent.argv.join(" "))),
        );
        rows
    }
}
