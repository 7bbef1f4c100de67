package io.admissiongateway.worker;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

/**
 * Two JSON documents to the JSON Patch that changes the first into the second; the same patch as from the gateway and
 * the SDKs in other languages.
 *
 * <p>Only {@code add}, {@code remove} and {@code replace} are written. Items of lists are aligned by their common
 * head and tail only. Where naming each change would make a patch that is too much work to apply, whole members are
 * replaced.
 *
 * <p>Source: RFC 6902; json_patch/diff.py of the Python SDK.
 */
final class JsonDiff {
    /** Limit of kube-apiserver for a user's JSON Patch. */
    private static final int MAX_OPERATIONS = 10_000;

    /** List items that change their index, summed over a patch. */
    private static final long MAX_SHIFTED = 100_000_000;

    /** Parts of all paths of a patch: fifty for each operation. */
    private static final long MAX_PATH_PARTS = 500_000;

    /** Levels at which whole values are compared before their parts. */
    private static final int SEARCHED_LEVELS = 8;

    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    private final ArrayNode operations = NODES.arrayNode();
    private long shifted;
    private long parts;

    private JsonDiff() {}

    /** Returns the operations that turn {@code before} into {@code after}; they share values with {@code after}. */
    static ArrayNode diff(JsonNode before, JsonNode after) {
        JsonDiff script = new JsonDiff();
        try {
            script.value("", before, after, 0, 0);
        } catch (TooMuch tooMuch) {
            return replacedMembers(before, after);
        }
        return script.operations;
    }

    private static ArrayNode replacedMembers(JsonNode before, JsonNode after) {
        ArrayNode whole = NODES.arrayNode().add(operation("replace", "", after));
        if (!before.isObject() || !after.isObject()) {
            return whole;
        }
        TreeSet<String> keys = new TreeSet<>(Json.BY_CODE_POINT);
        keys.addAll(before.propertyNames());
        keys.addAll(after.propertyNames());
        ArrayNode operations = NODES.arrayNode();
        for (String key : keys) {
            String path = "/" + escape(key);
            if (!after.has(key)) {
                operations.add(operation("remove", path, null));
            } else if (!before.has(key)) {
                operations.add(operation("add", path, after.get(key)));
            } else if (!Json.same(before.get(key), after.get(key))) {
                operations.add(operation("replace", path, after.get(key)));
            }
        }
        return operations.size() <= MAX_OPERATIONS ? operations : whole;
    }

    /** {@code level} is how many levels deep it is, and {@code lists} how many of these are lists. */
    private void value(String path, JsonNode before, JsonNode after, int level, int lists) {
        if (before instanceof ObjectNode old && after instanceof ObjectNode changed) {
            object(path, old, changed, level + 1, lists);
        } else if (before instanceof ArrayNode old && after instanceof ArrayNode changed && lists < SEARCHED_LEVELS) {
            array(path, old, changed, level + 1, lists + 1);
        } else if (!Json.same(before, after)) {
            note("replace", path, after, 0);
        }
    }

    private void object(String path, ObjectNode before, ObjectNode after, int level, int lists) {
        List<String> keys = new ArrayList<>();
        for (Map.Entry<String, JsonNode> member : before.properties()) {
            JsonNode other = after.get(member.getKey());
            boolean isSearched = level <= SEARCHED_LEVELS || !member.getValue().isContainer();
            if (other == null || !isSearched || !Json.same(member.getValue(), other)) {
                keys.add(member.getKey());
            }
        }
        for (String key : after.propertyNames()) {
            if (!before.has(key)) {
                keys.add(key);
            }
        }
        keys.sort(Json.BY_CODE_POINT);
        for (String key : keys) {
            String child = path + "/" + escape(key);
            JsonNode old = before.get(key);
            JsonNode changed = after.get(key);
            if (changed == null) {
                note("remove", child, null, 0);
            } else if (old == null) {
                note("add", child, changed, 0);
            } else {
                value(child, old, changed, level, lists);
            }
        }
    }

    private void array(String path, ArrayNode before, ArrayNode after, int level, int lists) {
        int shorter = Math.min(before.size(), after.size());
        int head = 0;
        while (head < shorter && Json.same(before.get(head), after.get(head))) {
            head++;
        }
        int tail = 0;
        while (tail < shorter - head
                && Json.same(before.get(before.size() - 1 - tail), after.get(after.size() - 1 - tail))) {
            tail++;
        }
        int old = before.size() - head - tail;
        int changed = after.size() - head - tail;
        int paired = Math.min(old, changed);
        for (int index = head; index < head + paired; index++) {
            value(path + "/" + index, before.get(index), after.get(index), level, lists);
        }
        // From the end, so that earlier indices remain valid.
        for (int index = head + old - 1; index >= head + paired; index--) {
            note("remove", path + "/" + index, null, tail);
        }
        for (int index = head + paired; index < head + changed; index++) {
            note("add", path + "/" + index, after.get(index), tail);
        }
    }

    /** Adds an operation by which {@code shifts} items of a list change their index. */
    private void note(String op, String path, JsonNode value, int shifts) {
        shifted += shifts;
        parts += path.chars().filter(character -> character == '/').count();
        if (operations.size() == MAX_OPERATIONS || shifted > MAX_SHIFTED || parts > MAX_PATH_PARTS) {
            throw new TooMuch();
        }
        operations.add(operation(op, path, value));
    }

    /** Returns one operation of a patch; one without a value where {@code value} is null. */
    static ObjectNode operation(String op, String path, JsonNode value) {
        ObjectNode operation = NODES.objectNode().put("op", op).put("path", path);
        if (value != null) {
            operation.set("value", value);
        }
        return operation;
    }

    /** Returns {@code key} as a token of a JSON Pointer (RFC 6901). */
    static String escape(String key) {
        return key.replace("~", "~0").replace("/", "~1");
    }

    /** The patch exceeds its bounds. */
    private static final class TooMuch extends RuntimeException {
        private static final long serialVersionUID = 1L;

        TooMuch() {
            super(null, null, false, false);
        }
    }
}
