//! Agents at their mailbox, over a real folder.

use std::fs;

use super::super::message::Priority;
use super::super::roster::Row;
use super::super::samples::id;
use super::super::text::parse_time;
use super::*;

fn at(millis: i64) -> Timestamp {
    parse_time("2026-02-19T11:32:15").expect("a time") + jiff::SignedDuration::from_millis(millis)
}

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let scene = Self { folder: tempfile::tempdir().expect("a folder") };
        Mailbox::create(&scene.root()).expect("made");
        scene
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("amp")
    }

    fn desk(&self, agent: &str) -> Desk {
        let mailbox = Mailbox::open(&self.root()).expect("a mailbox");
        Desk::new(mailbox, id(agent), &self.folder.path().join("private").join(agent))
    }

    fn say(&self, from: &str, to: &str, body: &str) -> String {
        let draft = Draft::new(to.parse().expect("a recipient"), Kind::Status, "s", body);
        self.desk(from).send(&draft, at(0)).expect("sent")[0].reference().to_string()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.root().join("agents").join(name)
    }

    /// What an agent reads, and what it is told beside.
    fn read(&self, agent: &str, now: Timestamp) -> Vec<String> {
        let batch = self.desk(agent).collect(now).expect("collected");
        let letters = batch.letters.iter().map(|letter| letter.message.content.body.clone());
        let words = letters.chain(batch.warnings.iter().map(super::super::show::warning)).collect();
        batch.keep().expect("kept");
        words
    }
}

/// Polling Protocol.
#[test]
fn what_is_read_is_read_once_and_what_is_not_kept_is_read_again() {
    let scene = Scene::new();
    scene.say("alpha", "bravo", "one");
    scene.say("alpha", "*", "two");
    let batch = scene.desk("bravo").collect(at(0)).expect("collected");
    assert_eq!(batch.letters.len(), 2);
    drop(batch);
    assert_eq!(scene.read("bravo", at(0)), ["one", "two"]);
    assert_eq!(scene.read("bravo", at(0)), [""; 0]);
    assert_eq!(scene.read("alpha", at(0)), [""; 0], "nobody reads what is its own");
    assert_eq!(scene.read("charlie", at(0)), ["two"]);
    assert_eq!(scene.desk("bravo").again(at(0)).expect("read").len(), 2);
}

/// Error Handling.
#[test]
fn a_gap_is_mended_by_its_sender() {
    let scene = Scene::new();
    for body in ["one", "two", "three"] {
        scene.say("alpha", "bravo", body);
    }
    let lost = scene.file("alpha/002.md");
    let bytes = fs::read(&lost).expect("a file");
    fs::remove_file(&lost).expect("removed");
    assert_eq!(scene.read("bravo", at(0)), ["one"]);
    assert_eq!(scene.read("bravo", at(300)), [""; 0], "now it is asked for");
    // Sequence gap: "Send ERROR requesting resend".
    let ask = fs::read_to_string(scene.file("bravo/001.md")).expect("a file");
    for line in ["<!-- to: alpha -->", "<!-- type: ERROR -->", "<!-- re: alpha/002 -->", "Please send alpha/002 again"]
    {
        assert!(ask.lines().any(|found| found == line), "{ask}");
    }
    assert_eq!(scene.read("alpha", at(400)), [""; 0], "alpha is not bothered with it");
    assert_eq!(fs::read(&lost).expect("it is there again"), bytes);
    assert_eq!(scene.read("bravo", at(500)), ["two", "three"]);
}

/// Known Issues.
#[test]
fn a_torn_message_is_mended_and_what_there_is_no_copy_of_is_said() {
    let scene = Scene::new();
    for body in ["one", "two", "three"] {
        scene.say("alpha", "bravo", body);
    }
    fs::write(scene.file("alpha/001.md"), "<!-- amp-ver").expect("torn");
    scene.read("bravo", at(0));
    scene.read("bravo", at(1000));
    scene.read("alpha", at(1100));
    assert_eq!(scene.read("bravo", at(1200)), ["one", "two", "three"]);
    // Without the copy it is an ERROR, and bravo goes on with a warning.
    scene.say("alpha", "bravo", "four");
    scene.say("alpha", "bravo", "five");
    fs::remove_file(scene.file("alpha/004.md")).expect("removed");
    fs::remove_dir_all(scene.folder.path().join("private/alpha/sent")).expect("removed");
    scene.read("bravo", at(2000));
    scene.read("bravo", at(2300));
    scene.read("alpha", at(2400));
    let told = scene.read("bravo", at(32_300));
    let warning = "alpha/004 is missing and did not come again; what follows it was delivered";
    assert_eq!(told, ["five", "There is no copy of alpha/004. Please go on without it.", warning]);
}

/// Message Format.
#[test]
fn files_of_others_are_named_and_passed_over() {
    let scene = Scene::new();
    scene.say("alpha", "bravo", "one");
    let good = fs::read_to_string(scene.file("alpha/001.md")).expect("a file");
    fs::write(scene.file("alpha/002.md"), good.replace("001", "007")).expect("written");
    fs::write(scene.file("alpha/003.md"), good.replace("001", "003").replace("\none\n", "\nthree\n")).expect("written");
    assert_eq!(scene.read("bravo", at(0)), ["one"]);
    scene.read("bravo", at(1000));
    let told = scene.read("bravo", at(31_000));
    let warning = "alpha/002 is no message and was passed over: `seq` is `007`, in the file of `002` (rule `seq`)";
    assert_eq!(told, ["three", warning]);
    fs::write(scene.file("alpha/notes.md"), "").expect("written");
    let (messages, bad) = everything(scene.desk("bravo").mailbox()).expect("all");
    assert_eq!(messages.len(), 3, "with bravo's question");
    let bad: Vec<&str> = bad.iter().map(|bad| bad.violation.rule).collect();
    assert_eq!(bad, [rules::SEQ, rules::FILE_NAME]);
}

#[test]
fn copies_remember_numbers_that_were_used() {
    let scene = Scene::new();
    assert_eq!([scene.say("alpha", "*", "one"), scene.say("alpha", "*", "two")], ["alpha/001", "alpha/002"]);
    fs::remove_file(scene.file("alpha/002.md")).expect("removed");
    assert_eq!(scene.say("alpha", "*", "three"), "alpha/003");
    fs::remove_file(scene.file("alpha/003.md")).expect("removed");
    fs::remove_dir_all(scene.folder.path().join("private/alpha/sent")).expect("removed");
    assert_eq!(scene.say("alpha", "*", "four"), "alpha/004");
}

#[test]
fn a_message_in_parts_is_found_by_any_of_them() {
    let scene = Scene::new();
    let body: String = (0..3000).map(|n| format!("line {n}\n")).collect();
    scene.say("alpha", "bravo", &body);
    for seq in ["alpha/001", "alpha/3"] {
        let found =
            scene.desk("bravo").find(&seq.parse().expect("a reference")).expect("readable").expect("it is there");
        assert_eq!((found.seq.get(), found.part, found.content.body.as_str()), (1, None, body.trim_end()));
    }
    let nothing = scene.desk("bravo").find(&"alpha/009".parse().expect("a reference")).expect("readable");
    assert_eq!(nothing, Err("there is no message alpha/009".to_owned()));
    assert_eq!(scene.read("bravo", at(0)), [body.trim_end()]);
}

#[test]
fn doubts_are_told() {
    let scene = Scene::new();
    let desk = scene.desk("alpha");
    for (agent, status) in [("bravo", Status::Active), ("charlie", Status::Crashed)] {
        desk.mailbox().register(&Row::new(id(agent), "r", None, at(0))).expect("registered");
        desk.mailbox().set_status(&id(agent), &status).expect("changed");
    }
    let doubts = |to: &str| {
        let draft = Draft { priority: Priority::High, ..Draft::new(to.parse().expect("one"), Kind::Status, "s", "b") };
        desk.doubts(&draft).expect("readable").join("")
    };
    assert_eq!(["*", "bravo"].map(doubts), ["", ""]);
    assert_eq!(doubts("charlie"), "charlie is gone (`crashed`)");
    assert!(doubts("delta").starts_with("nobody is called delta") && doubts("alpha").contains("yourself"));
}

#[test]
fn a_torn_standing_means_reading_again_and_a_link_is_not_followed() {
    let scene = Scene::new();
    scene.say("alpha", "bravo", "one");
    scene.read("bravo", at(0));
    let standing = scene.folder.path().join("private/bravo/read.json");
    fs::write(&standing, "{\"senders\":{\"al").expect("torn");
    assert_eq!(scene.read("bravo", at(0)), ["one"]);
    let outside = scene.folder.path().join("outside");
    fs::rename(&standing, &outside).expect("moved");
    std::os::unix::fs::symlink(&outside, &standing).expect("linked");
    assert_eq!(scene.read("bravo", at(0)), ["one"]);
    assert!(standing.symlink_metadata().expect("a file").is_file());
}
