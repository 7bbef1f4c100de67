package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Random;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ArrayNode;
import tools.jackson.databind.node.ObjectNode;

class LazyCopyTest {
    private static final String POD =
            """
            {"m": {"l": {"a": "x", "n": null}, "t": [[1], {"k": []}, true]}, "s": "text", "c": [{"r": 1.50}, {}, "i"]}""";

    private static JsonNode random(Random random, int depth) {
        int kind = random.nextInt(depth > 3 ? 4 : 8);
        if (kind > 5) {
            ArrayNode list = Json.MAPPER.createArrayNode();
            for (int count = random.nextInt(4); count > 0; count--) {
                list.add(random(random, depth + 1));
            }
            return list;
        }
        if (kind > 3) {
            ObjectNode object = Json.MAPPER.createObjectNode();
            for (int count = random.nextInt(4); count > 0; count--) {
                object.set("m" + random.nextInt(4), random(random, depth + 1));
            }
            return object;
        }
        return Json.MAPPER.readTree(new String[] {"null", "true", "1.50", "\"t\""}[kind]);
    }

    /** Looks at a part of the document, or changes it; the same for the same numbers. */
    private static void use(JsonNode document, Random random) {
        JsonNode node = document;
        while (node.size() > 0 && random.nextInt(4) > 0) {
            int index = random.nextInt(node.size());
            String name = "m" + random.nextInt(4);
            JsonNode inner = node.isArray() ? node.get(index) : node.get(name);
            node = inner == null ? node : inner;
        }
        String name = "m" + random.nextInt(4);
        JsonNode value = random(random, 2);
        int action = random.nextInt(8);
        int index = random.nextInt(node.size() + 1);
        if (node instanceof ObjectNode object) {
            switch (action) {
                case 0 -> object.set(name, value);
                case 1 -> object.remove(name);
                case 2 -> object.putIfAbsent(name, value);
                case 3 -> object.withArray("/" + name + "-list").add(value);
                case 4 -> object.properties().forEach(member -> assertEquals(member.getValue(), object.get(member.getKey())));
                case 5 -> object.removeAll();
                default -> assertEquals(object.has(name), object.get(name) != null);
            }
        } else if (node instanceof ArrayNode list) {
            switch (action) {
                case 0 -> list.add(value);
                case 1 -> list.insert(index, value);
                case 2 -> list.remove(index);
                case 3 -> {
                    if (index < list.size()) {
                        list.set(index, value);
                    }
                }
                case 4 -> list.removeAll();
                case 5 -> list.addAll(list.deepCopy());
                default -> list.forEach(item -> assertFalse(item.isMissingNode()));
            }
        }
    }

    @Test
    void aCopyIsUsedLikeADeepCopy() {
        for (int seed = 0; seed < 2000; seed++) {
            Random random = new Random(seed);
            JsonNode source = random(random, 0);
            String before = source.toString();
            JsonNode copy = LazyCopy.of(source);
            JsonNode deep = source.deepCopy();
            for (int step = random.nextInt(6); step > 0; step--) {
                long same = random.nextLong();
                use(copy, new Random(same));
                use(deep, new Random(same));
            }
            String message = "seed " + seed;
            assertEquals(JsonDiff.diff(source, deep), JsonDiff.diff(source, copy), message);
            assertEquals(Json.same(source, deep), Json.same(source, copy), message);
            assertEquals(deep.toString(), copy.toString(), message);
            assertEquals(deep, copy, message);
            assertEquals(copy, deep, message);
            assertEquals(deep.hashCode(), copy.hashCode(), message);
            assertEquals(deep, copy.deepCopy(), message);
            assertEquals(before, source.toString(), message);
        }
    }

    @Test
    void onlyWhatIsLookedAtIsCopied() {
        JsonNode source = Json.MAPPER.readTree(POD);
        JsonNode copy = LazyCopy.of(source);
        assertEquals("text", copy.get("s").stringValue());
        assertEquals(3, copy.size());
        assertTrue(copy.has("s") && !copy.has("x"));
        assertNull(copy.get("x"));
        assertTrue(LazyCopy.isUntouched(source, copy));
        assertEquals("x", copy.at("/m/l/a").stringValue());
        assertFalse(LazyCopy.isUntouched(source, copy));
        assertTrue(LazyCopy.isUntouched(source.at("/m/l"), copy.at("/m/l")));
        assertTrue(LazyCopy.isUntouched(source.get("c"), copy.get("c")));
        assertEquals("i", copy.at("/c/2").stringValue());
        assertTrue(LazyCopy.isUntouched(source.get("c"), copy.get("c")));
        assertFalse(LazyCopy.isUntouched(source.deepCopy().get("c"), copy.get("c")));
    }
}
