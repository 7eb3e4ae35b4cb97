//! Settings from flags, variables and config files, their errors, and how `doctor` shows them.

use super::CliFixture;

#[test]
fn doctor_shows_settings_and_their_sources() {
    let world = CliFixture::new();
    world.file(".longshore.toml", "memory = '1g'\nmax = 3\nretries = 5\n[agents.mine]\nargv = ['agent', '--go']\n");
    let config = world.dir.path().join("home/.config/longshore");
    std::fs::create_dir_all(&config).expect("made");
    std::fs::write(config.join("config.toml"), "memory = '8g'\ngrace = '3s'\nretries = 6\n").expect("written");
    let environment = [("LONGSHORE_MAX", "7"), ("LONGSHORE_NETWORK", "bridge")];
    let output = world.run_with(&["doctor", "--image", "my/image"], &environment).expect(3, &["BAD   engine"]);
    let row = |name: &str| {
        let mut lines = output.out.lines().map(str::trim);
        let found = lines.find(|line| line.split_whitespace().next() == Some(name) && !line.contains("BAD"));
        found.unwrap_or_else(|| panic!("{name} in {}", output.out)).to_owned()
    };
    assert!(row("memory").contains("1g") && row("memory").ends_with(".longshore.toml"));
    assert!(row("max").contains('7') && row("max").ends_with("LONGSHORE_MAX"));
    assert!(row("retries").contains('5'));
    assert!(row("grace").contains("3s") && row("grace").ends_with("config.toml"));
    assert!(row("timeout").contains("30m") && row("timeout").ends_with("default"));
    assert!(row("agents.mine").contains("agent --go"));
    assert!(output.out.contains("my/image") && output.out.contains("--image"));
}

#[test]
fn settings_errors_report_their_location() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    world.file(".longshore.toml", "max = 3\nmemroy = '1g'\n");
    world
        .run(&["plan", "t.json"])
        .expect(2, &[".longshore.toml:2:1: unknown field `memroy`", "longshore schema config"]);
    world.file(".longshore.toml", "");
    world.run_with(&["plan", "t.json"], &[("LONGSHORE_MAX", "many")]).expect(2, &["`LONGSHORE_MAX`", "`many`"]);
    for refused in ["LD_PRELOAD", "PATH", "GIT_DIR", "LONGSHORE_SWARM", "lower", "A-B"] {
        let output = world.run(&["run", "t.json", "--env", &format!("{refused}=s3cret")]).expect(2, &[refused]);
        assert!(!output.err.contains("s3cret"), "{}", output.err);
    }
    world.run(&["run", "t.json", "--env", "NOT_SET_ANYWHERE"]).expect(2, &["`NOT_SET_ANYWHERE` is not set"]);
    world.run(&["run", "t.json", "--network", "host"]).expect(2, &["may not share the host's network"]);
}

#[test]
fn variable_values_are_never_printed() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    let environment = [("LONGSHORE_ENV", "TOKEN"), ("TOKEN", "s3cret-one"), ("LONGSHORE_LOG", "trace")];
    for args in [&["run", "t.json", "--env", "OTHER=s3cret-two"][..], &["doctor"]] {
        let output = world.run_with(args, &environment).expect(3, &[]);
        assert!(!output.out.contains("s3cret") && !output.err.contains("s3cret"), "{}{}", output.out, output.err);
    }
}

#[test]
fn invalid_values_are_named_in_usage_errors() {
    let world = CliFixture::new();
    world.tasks("t.json", "feat/x", r#","command":"true""#);
    for (flag, value, wanted) in [
        ("--max", "-1", "-1 is not in 1..=1000"),
        ("--retries", "-1", "-1 is not in 0..=100"),
        ("--memory", "-5g", "'-5g'"),
        ("--cpus", "-1", "'-1'"),
        ("--timeout", "-5s", "'-5s'"),
        ("--grace", "-1", "'-1'"),
    ] {
        let output = world.run(&["run", "t.json", flag, value]).expect(2, &["invalid value", flag, wanted]);
        assert!(!output.err.contains("tip:"), "{}", output.err);
    }
    world.run(&["run", "t.json", "--verify", " "]).expect(2, &["a verify command is empty (from --verify)"]);
    world.run_with(&["run", "t.json"], &[("LONGSHORE_VERIFY", " ")]).expect(2, &["is empty (from LONGSHORE_VERIFY)"]);
}

#[test]
fn doctor_prints_json() {
    let world = CliFixture::new();
    let output = world.run(&["doctor", "--json", "--image", "some/image"]).expect(3, &[]);
    let lines: Vec<serde_json::Value> =
        output.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let find = |name: &str| lines.iter().find(|line| line["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!((&find("engine")["thing"], &find("engine")["verdict"]), (&"check".into(), &"bad".into()));
    assert!(find("engine")["hint"].as_str().is_some_and(|hint| hint.contains("start Docker")));
    assert_eq!((&find("image")["verdict"], find("image")["reason"].as_str()), (&"some/image".into(), Some("--image")));
}
