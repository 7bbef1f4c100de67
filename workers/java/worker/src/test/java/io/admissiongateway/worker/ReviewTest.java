package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import java.lang.ref.WeakReference;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.node.ObjectNode;

final class ReviewTest {
    private static final String POD =
            """
            {"uid": "u1", "operation": "CREATE", "name": "web", "namespace": "shop", "dryRun": true,
             "kind": {"group": "", "version": "v1", "kind": "Pod"},
             "object": {"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}}, "oldObject": null}
            """;

    @Test
    void readsTheRequest() {
        Review review = Review.fromJson(POD);
        assertEquals("u1", review.uid());
        assertEquals("CREATE", review.operation());
        assertEquals("web", review.name());
        assertEquals("shop", review.namespace());
        assertEquals("", review.subResource());
        assertEquals("Pod", review.kind().get("kind").stringValue());
        assertTrue(review.isDryRun());
        assertTrue(review.hasObject());
        assertTrue(review.oldObject().isMissingNode());
        assertTrue(review.namespaceObject().isMissingNode());
        assertTrue(review.resource().isMissingNode());
        assertFalse(review.isCancelled());
    }

    @Test
    void takesAWholeAdmissionReview() {
        assertEquals("u1", Review.fromJson("{\"kind\": \"AdmissionReview\", \"request\": " + POD + "}").uid());
        assertThrows(IllegalArgumentException.class, () -> Review.fromJson("[]"));
        assertThrows(IllegalArgumentException.class, () -> Review.fromJson("{"));
    }

    @Test
    void keepsNamespaceAndTimeLeft() {
        Review review = Review.fromJson(POD, "{\"metadata\": {\"name\": \"shop\"}}", Duration.ofMinutes(1));
        assertEquals("shop", review.namespaceObject().at("/metadata/name").stringValue());
        assertTrue(review.remaining().compareTo(Duration.ofMinutes(1)) <= 0);
        assertTrue(review.remaining().compareTo(Duration.ofSeconds(30)) > 0);
        assertTrue(Review.fromJson(POD).remaining().compareTo(Duration.ofDays(365)) > 0);
    }

    @Test
    void findsWhatWasChangedInPlace() {
        Review review = Review.fromJson(POD);
        for (JsonNode container : review.object().at("/spec/containers")) {
            ((ObjectNode) container).put("imagePullPolicy", "Always");
        }
        assertPatch("[{'op':'add','path':'/spec/containers/0/imagePullPolicy','value':'Always'}]", review);
    }

    @Test
    void findsWhatWasChangedInTheRequest() {
        Review review = Review.fromJson(POD);
        assertSame(review.object(), review.request().get("object"));
        ((ObjectNode) review.request().at("/object/metadata")).put("name", "other");
        assertPatch("[{'op':'replace','path':'/metadata/name','value':'other'}]", review);
    }

    @Test
    void takesAnotherObject() {
        Review review = Review.fromJson(POD);
        ObjectNode other = (ObjectNode) review.object().deepCopy();
        other.remove("spec");
        review.setObject(other);
        assertPatch("[{'op':'remove','path':'/spec'}]", review);
    }

    @Test
    void anOwnPatchCountsInsteadOfChanges() {
        Review review = Review.fromJson(POD);
        ((ObjectNode) review.object()).put("ignored", true);
        review.patch().replace("/metadata/name", "a<b").remove("/spec");
        assertPatch("[{'op':'replace','path':'/metadata/name','value':'a<b'},{'op':'remove','path':'/spec'}]", review);
    }

    @Test
    void nothingLookedAtIsNothingChanged() {
        assertTrue(Review.fromJson(POD).changes().isEmpty());
        Review looked = Review.fromJson(POD);
        looked.object();
        assertTrue(looked.changes().isEmpty());
    }

    @Test
    void changesNeedAnObject() {
        String deletion = "{\"operation\": \"DELETE\", \"object\": null}";
        Review patched = Review.fromJson(deletion);
        assertTrue(patched.object().isMissingNode());
        assertNull(patched.object(io.fabric8.kubernetes.api.model.Pod.class));
        patched.patch().add("/metadata", "x");
        assertThrows(IllegalStateException.class, patched::changes);
        Review set = Review.fromJson(deletion);
        set.setObject((JsonNode) Json.MAPPER.createObjectNode());
        assertThrows(IllegalStateException.class, set::changes);
        Review list = Review.fromJson(POD);
        list.setObject((JsonNode) Json.MAPPER.createArrayNode());
        assertThrows(IllegalStateException.class, list::changes);
        Review looked = Review.fromJson(deletion);
        looked.request();
        assertTrue(looked.changes().isEmpty());
    }

    @Test
    void reviewsOfOnePayloadDoNotSeeEachOther() {
        Payload payload = new Payload(ByteString.copyFromUtf8(POD), ByteString.EMPTY);
        Review one = new Review(payload.use(), false, Review.NEVER);
        Review other = new Review(payload.use(), true, Review.NEVER);
        ((ObjectNode) one.object()).removeAll();
        ((ObjectNode) one.kind()).removeAll();
        one.request().removeAll();
        assertEquals("web", other.object().at("/metadata/name").stringValue());
        assertEquals("Pod", other.kind().get("kind").stringValue());
        assertTrue(other.changes().isEmpty());
    }

    /** Also where patches do not apply, and whatever of the chain has been parsed before. */
    @Test
    void versionsOfAPayloadAreTheSameWheneverTheyAreParsed() throws Exception {
        for (int seed = 0; seed < 100; seed++) {
            Random random = new Random(seed);
            Payload version = new Payload(ByteString.copyFromUtf8(POD), ByteString.EMPTY);
            JsonNode object = version.request().get("object").deepCopy();
            List<Object> parsed = new ArrayList<>();
            for (int step = 0; step < 8; step++) {
                String name = "m" + random.nextInt(3);
                String operation = random.nextBoolean() ? "'remove'" : "'add', 'value': 1";
                String patch = ("[{'path': '/" + name + "', 'op': " + operation + "}]").replace("'", "\"");
                try {
                    object = JsonPatch.apply(object.deepCopy(), Json.MAPPER.readTree(patch));
                } catch (IllegalArgumentException doesNotApply) {
                    // The version is the same.
                }
                version = version.after(ByteString.copyFromUtf8(patch));
                if (random.nextInt(3) == 0) {
                    parsed.add(version.request());
                }
            }
            assertEquals(object, version.request().get("object"), "seed " + seed);
            assertEquals("web", version.request().at("/object/metadata/name").stringValue());
        }
    }

    @Test
    void aReviewThatHasEndedKeepsNothingParsed() throws Exception {
        Payload payload = new Payload(ByteString.copyFromUtf8(POD), ByteString.EMPTY);
        Review review = new Review(payload.use(), true, Review.NEVER);
        WeakReference<Object> parsed = new WeakReference<>(payload.request());
        review.object();
        review.forget();
        for (int attempt = 0; attempt < 200 && parsed.get() != null; attempt++) {
            System.gc();
            Thread.sleep(20);
        }
        assertNull(parsed.get());
        assertEquals("web", review.object().at("/metadata/name").stringValue());
    }

    @Test
    void aPolicyThatIsNotMutatingChangesNothing() {
        Payload payload = new Payload(ByteString.copyFromUtf8(POD), ByteString.EMPTY);
        Review review = new Review(payload.use(), false, Review.NEVER);
        ((ObjectNode) review.object()).removeAll();
        review.patch().remove("/spec");
        assertTrue(review.changes().isEmpty());
    }

    @Test
    void payloadsAreReadWhenTheyAreLookedAt() {
        Review review = new Review(new Payload(ByteString.copyFromUtf8("{"), ByteString.EMPTY), true, Review.NEVER);
        assertTrue(review.changes().isEmpty());
        assertThrows(MalformedPayload.class, review::uid);
    }

    @Test
    void textsAreWhatUtf8CanSay() {
        Review review = Review.fromJson(POD);
        review.warn("half \ud83d of one");
        review.warn("\ud83d\ude00");
        review.annotate("k", "\ude00");
        assertEquals(java.util.List.of("half ? of one", "\ud83d\ude00"), review.warnings());
        assertEquals(java.util.Map.of("k", "?"), review.annotations());
    }

    private static void assertPatch(String expected, Review review) {
        assertEquals(Json.MAPPER.readTree(expected.replace('\'', '"')), review.changes());
    }
}
