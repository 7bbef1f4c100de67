package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

final class JsonDiffTest {
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    @TestFactory
    Stream<DynamicTest> thePatchMakesTheChangedObject() throws IOException {
        return StreamSupport.stream(Vectors.read("diff.json").spliterator(), false)
                .map(
                        vector ->
                                DynamicTest.dynamicTest(
                                        vector.get("name").stringValue(),
                                        () -> check(vector.get("before"), vector.get("after"))));
    }

    /** Another library applies the patch. */
    private static void check(JsonNode before, JsonNode after) {
        ArrayNode patch = JsonDiff.diff(before, after);
        var operations = jakarta.json.Json.createReader(new StringReader(patch.toString())).readArray();
        var target = jakarta.json.Json.createReader(new StringReader(before.toString())).read();
        JsonNode found = read(jakarta.json.Json.createPatch(operations).apply(target).toString());
        assertTrue(Json.same(after, found), () -> patch + " makes " + found);
        assertEquals(Json.same(before, after), patch.isEmpty());
    }

    @Test
    void commonEndsOfListsStay() {
        assertEquals(
                read("[{'op': 'add', 'path': '/0/0', 'value': 0}]"),
                JsonDiff.diff(read("[[1, 2, 3]]"), read("[[0, 1, 2, 3]]")));
        assertEquals(
                read("[{'op': 'replace', 'path': '/~0~1/1', 'value': {'a': 2}}, {'op': 'remove', 'path': '/~0~1/2'}]"),
                JsonDiff.diff(read("{'~/': [1, 2, {'a': 1}, 3]}"), read("{'~/': [1, {'a': 2}, 3]}")));
    }

    @Test
    void replacesTheMemberWherePathsWouldBeLongerThanAnAnswer() {
        String key = "k".repeat(JsonDiff.MAX_PATH_CHARS / 100);
        ObjectNode before = NODES.objectNode();
        ObjectNode after = NODES.objectNode();
        ArrayNode old = before.putObject("a").putArray(key);
        ArrayNode changed = after.putObject("a").putArray(key);
        for (int index = 0; index < 100; index++) {
            old.add(index);
            changed.add(-index - 1);
        }
        ArrayNode patch = JsonDiff.diff(before, after);
        assertEquals(1, patch.size());
        assertEquals("/a", patch.get(0).get("path").stringValue());
    }

    @Test
    void replacesWholeMembersWhereThePatchWouldBeTooLong() {
        ObjectNode before = NODES.objectNode();
        ObjectNode after = NODES.objectNode();
        ArrayNode old = before.put("same", 1).putArray("list");
        ArrayNode changed = after.put("same", 1).putArray("list");
        for (int index = 0; index <= 10_000; index++) {
            old.add(index);
            changed.add(-index - 1);
        }
        ArrayNode patch = JsonDiff.diff(before, after);
        assertEquals(1, patch.size());
        assertEquals("/list", patch.get(0).get("path").stringValue());
        assertEquals(changed, patch.get(0).get("value"));
    }

    @Test
    void replacesTheDocumentWhereItsMembersAreTooMany() {
        ObjectNode before = NODES.objectNode();
        ObjectNode after = NODES.objectNode();
        for (int index = 0; index <= 10_000; index++) {
            before.put("k" + index, 0);
            after.put("k" + index, 1);
        }
        ArrayNode patch = JsonDiff.diff(before, after);
        assertEquals(1, patch.size());
        assertEquals("", patch.get(0).get("path").stringValue());
    }

    @Test
    void replacesTheListWhereItemsWouldBeShiftedTooOften() {
        ObjectNode before = NODES.objectNode();
        ObjectNode after = NODES.objectNode();
        ArrayNode old = before.putArray("list");
        ArrayNode changed = after.putArray("list");
        for (int index = 0; index < 9_000; index++) {
            changed.add("new");
        }
        for (int index = 0; index < 20_000; index++) {
            old.add(index);
            changed.add(index);
        }
        assertEquals(1, JsonDiff.diff(before, after).size());
    }

    @Test
    void wholeNumbersAreEqualWhateverTheirJavaType() {
        assertTrue(Json.same(NODES.numberNode(7), NODES.numberNode(7L)));
        assertTrue(Json.same(NODES.numberNode(7), NODES.numberNode(java.math.BigInteger.valueOf(7))));
        assertTrue(Json.same(NODES.numberNode(0.5), read("0.50")));
        assertFalse(Json.same(NODES.numberNode(1), NODES.numberNode(1.0)));
        assertFalse(Json.same(NODES.numberNode(1), NODES.booleanNode(true)));
        assertFalse(Json.same(read("123456789012345678901"), read("123456789012345678902")));
    }

    @Test
    void numbersKeepTheirDigits() {
        String text = "{\"a\":123456789012345678901234567890,\"b\":0.10,\"c\":1.0,\"d\":18446744073709551615}";
        assertEquals(text, new String(Json.MAPPER.writeValueAsBytes(read(text)), StandardCharsets.UTF_8));
    }

    private static JsonNode read(String text) {
        return Json.MAPPER.readTree(text.replace('\'', '"'));
    }
}
