//! Config files, and where their errors are reported.

use std::path::Path;

use crate::cli::amounts::{Cpus, Size};
use crate::cli::settings::config_file::parse_config;

fn parse_error(text: &str) -> String {
    parse_config(text, Path::new("c.toml")).expect_err(text).to_string()
}

#[test]
fn parses_a_full_config_file() {
    let text = r#"
        agent = "claude"
        image = "my/image:1"
        max = 3
        fan_out = "file"
        network = "bridge"
        memory = "512m"
        cpus = 1.5
        timeout = "20m"
        idle_timeout = "1h"
        retries = 2
        verify = ["make test"]
        grace = "5s"
        keep = true
        env = ["TOKEN", "MODE=fast"]
        [git]
        name = "Bot"
        email = "bot@example.org"
        [agents.claude]
        argv = ["claude", "-p"]
        prompt = "stdin"
        env = ["ANTHROPIC_API_KEY"]
    "#;
    let config = parse_config(text, Path::new("c.toml")).expect("a good file");
    assert_eq!(config.cpus, Some(Cpus(1500)));
    assert_eq!(config.memory, Some(Size(512 << 20)));
    assert_eq!(config.agents["claude"].argv, ["claude", "-p"]);
    assert_eq!(config.env.expect("given")[1].value(), Some("fast"));
}

#[test]
fn errors_report_line_and_column() {
    let typo = parse_error("max = 3\nmemroy = \"2g\"\n");
    assert!(typo.starts_with("c.toml:2:1: unknown field `memroy`"), "{typo}");
    let unit = parse_error("timeout = \"30\"\n");
    assert!(unit.starts_with("c.toml:1:11: `30` has no unit"), "{unit}");
    let refused = parse_error("\n\nenv = [\"A\", \"PATH\"]\n");
    assert!(refused.starts_with("c.toml:3:") && refused.contains("`PATH` is refused"), "{refused}");
    assert!(parse_error("max = ").starts_with("c.toml:1:"));
    assert!(parse_error("image = 1\nmax = 0").contains("c.toml:1:9"));
    assert!(parse_error("keep = true\nmax = 0").starts_with("c.toml:2:1: `max` must be"));
    assert!(parse_error("[agents.x]\nargv = []").starts_with("c.toml:1:1: agent `x` has no program"));
    assert!(parse_error("[agents.x]\nargv = [\"a\"]\nshell = true").contains("unknown field `shell`"));
}
