//! ACP's rules, each with its section of the spec. Each rule has an invalid golden file.

use crate::protocol::rule::rules;

rules! {
    LINE_LENGTH = "line-length", "Transport", "A line has at most 65,536 bytes, the newline not counted.";
    UTF8 = "utf8", "Transport", "A line is UTF-8.";
    JSON = "json", "Transport", "A line is exactly one JSON value.";
    JSON_OBJECT = "json-object", "Transport", "That value is an object.";
    DUPLICATE_KEY = "duplicate-key", "longshore", "Keys are unique in the message, its payload and its `envVars`.";
    REQUIRED = "required", "Message Envelope; Payload Fields", "Fields marked as required are present.";
    FIELD_TYPE = "field-type", "Message Envelope; Payload Fields", "A field has the JSON type of the tables.";
    TYPE_UNKNOWN = "type-unknown", "Message Types", "`type` is one of the four.";
    DIRECTION = "direction", "Message Types", "A message has the direction of its type.";
    TIMESTAMP = "timestamp", "Message Envelope", "`timestamp` is an RFC 3339 date-time, with its offset.";
    SWARM_ID = "swarm-id", "Message Envelope", "`swarmId` is a UUID v4, hyphenated.";
    CONTAINER_ID = "container-id", "Message Envelope", "`containerId` is 12 to 64 lowercase hexadecimal digits.";
    TASK_FILE_PATH = "task-file-path", "task-request",
        "`taskFilePath` is relative, without `..`, backslash or control character, and ends with `.json`.";
    BRANCH_NAME = "branch-name", "task-request",
        "`branchName` matches `^[a-zA-Z0-9][a-zA-Z0-9/_-]*$`, is valid in git, and is not `main` or `master`.";
    REPO_URL = "repo-url", "task-request", "`repoUrl` is `https://`, `ssh://` or `user@host:path`.";
    REPO_URL_CREDENTIALS = "repo-url-credentials", "longshore",
        "`repoUrl` holds no credentials: no password, and no userinfo on https.";
    ENV_KEY = "env-key", "task-request", "Keys of `envVars` match `^[A-Z_][A-Z0-9_]*$`.";
    ENV_KEY_REFUSED = "env-key-refused", "longshore",
        "`envVars` does not set `PATH`, `HOME`, `LD_*`, `GIT_*` or `LONGSHORE_*`.";
    ENV_VALUE = "env-value", "longshore", "Values of `envVars` have no NUL.";
    STORY_ID = "story-id", "progress-update", "`storyId` matches `^US-\\d{3}$`.";
    STORY_STATUS = "story-status", "progress-update", "`status` is one of the five of a story.";
    OUTPUT_LENGTH = "output-length", "progress-update", "`output` has at most 2000 characters.";
    COMPLETION_STATUS = "completion-status", "completion", "`status` is one of the three of a container.";
    PR_URL = "pr-url", "completion", "`prUrl` is a valid URL or null.";
    ERRORS_COUNT = "errors-count", "completion", "`errors` has at most 50 entries.";
    ERRORS_LENGTH = "errors-length", "completion", "An entry of `errors` has at most 500 characters.";
    ERROR_CODE = "error-code", "error", "`code` matches `^[A-Z][A-Z0-9_]*$`.";
    MESSAGE_LENGTH = "message-length", "error", "`message` has at most 2000 characters.";
    OWN_SWARM = "own-swarm", "longshore", "`swarmId` is the sandbox's own swarm.";
    OWN_CONTAINER = "own-container", "longshore", "`containerId` is the sandbox's own container.";
    OWN_STORY = "own-story", "longshore", "`storyId` is a story of the sandbox's assignment.";
    STORY_MOVE = "story-move", "longshore", "A story's status changes only as allowed.";
    AFTER_COMPLETION = "after-completion", "completion", "`completion` is the last message.";
}
