//! Names of the protocol's rules, used as `code.subcode` of a fault, each with its section.

use crate::protocol::rule::rules;

rules! {
    LIMIT_EXCEEDED = "LimitExceeded", "7.0", "A frame is within the node's limits: bytes, depth, values, text, blocks, grams, nodes, edges.";
    UTF8 = "NotUtf8", "5", "A message is UTF-8.";
    JSON = "NotJson", "5", "A message is one JSON value (RFC 8259) with nothing after it.";
    DUPLICATE_KEY = "DuplicateKey", "5.2.1; 5.3.1", "Keys of an object are unique, at any depth.";
    NUMBER = "Number", "2.7.2.1", "A number is a finite double; an integer is not rounded (RFC 8785).";
    FRAME_ROOT = "SingleFrameRoot", "5", "The message is an object with exactly one `frame`, an object.";
    NESTED_FRAME = "NestedFrame", "5", "A frame does not contain another.";
    EXTRANEOUS_KEY = "ExtraneousKey", "5", "The root has only `frame`, which has only `version`, `Header`, `Body` and `MemoryGrams`.";
    VERSION_TYPE = "VersionType", "5.1.1", "`version` is a string.";
    HEADER = "Header", "5", "`Header`, if present, is an object.";
    BODY = "Body", "5; 5.1", "`Body` is present and an object.";
    MEMORY_GRAMS = "MemoryGrams", "5", "`MemoryGrams`, if present, is a list of objects.";
    HEADER_FIELD = "HeaderField", "1.4; 5.4.8", "Message fields have the types that the spec shows.";
    HEADER_BLOCKS = "HeaderBlocks", "1.4", "`headerBlocks` is a list of objects with a `type`.";
    BLOCK_NAME = "BlockName", "5.2.1", "A block's name is in camelCase.";
    BLOCK_TWICE = "BlockTwice", "5.2.1", "A block's name is unique over both forms.";
    MUST_UNDERSTAND_TYPE = "MustUnderstandType", "5.2.1; 5.2.3", "`mustUnderstand` is a boolean.";
    RELAY_TYPE = "RelayType", "5.2.1; 5.2.4", "`relay` is a boolean.";
    ROLE_TYPE = "RoleType", "5.2.1; 5.2.2", "`role` is a string.";
    ENCODING_STYLE_TYPE = "EncodingStyleType", "5.2.1; 5.3.1", "`encodingStyle` and `schemaVersion` are strings.";
    BODY_SCHEMA = "BodySchema", "5.3", "The Body matches the agreed schema.";
    BLOCK_CONTENT = "BlockContent", "5.2.1", "A module's block has the fields that the module defines.";
    FAULT_TYPE = "FaultType", "5.3.1", "A fault's fields have the types of 5.4.";
    FAULT_CODE = "FaultCode", "5.4.1", "A fault has a `code` with a `value`.";
    FAULT_CODE_KNOWN = "FaultCodeKnown", "5.4.6", "The code's value is a base code.";
    FAULT_SUBCODE = "FaultSubcode", "5.4.1", "A subcode is words separated by dots.";
    FAULT_REASON = "FaultReason", "5.4.2", "A fault has at least one reason, each with a text and a language.";
    FAULT_LANG = "FaultLang", "5.4.2", "A reason's language is a BCP 47 tag.";
    FAULT_NODE = "FaultNode", "5.4.3", "A fault of an intermediary names its node by an absolute URI.";
    FAULT_ROLE = "FaultRole", "5.4.4", "A fault's role is a string.";
    FAULT_DETAIL = "FaultDetail", "5.4.5", "A fault's detail is an object with camelCase keys.";
    FAULT_SCHEMA = "FaultSchema", "5.4.1; 5.4.5", "A fault's subcode and detail are on the application's lists.";
    GRAM = "MemoryGram", "6.0", "A MemoryGram is a valid graph with an id and a timestamp.";
    TTL_EXPIRED = "amp:TTLExpired", "1.5.2", "A message is not forwarded beyond its lifetime.";
    MISROUTED = "Misrouted", "longshore", "A message reaches the receiver that it names.";
    ROUTING_LOOP = "RoutingLoop", "longshore", "A message passes a node at most once.";
    REPLAY_MEMORY_FULL = "ReplayMemoryFull", "longshore", "A node accepts no more messages than it can remember.";
    SECURITY_VIOLATION = "SecurityViolation", "7.0", "A message passes the node's security checks.";
}
