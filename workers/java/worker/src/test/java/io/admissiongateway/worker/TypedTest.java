package io.admissiongateway.worker;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.fabric8.kubernetes.api.model.Container;
import io.fabric8.kubernetes.api.model.ContainerBuilder;
import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.Quantity;
import java.util.Map;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.node.ObjectNode;

/** What a class does not know is not lost, and what it would write of its own does not appear. */
final class TypedTest {
    private static final String POD =
            """
            {"operation": "CREATE", "object": {"apiVersion": "v1", "kind": "Pod",
             "metadata": {"name": "web", "creationTimestamp": null, "newer": {"a": 1.50}, "labels": {"a": "1"}},
             "spec": {"unknown": 12345678901234567890, "terminationGracePeriodSeconds": 30, "containers": [
               {"name": "one", "image": "a:1", "ofTomorrow": {"x": [1, 2.0]}, "resources": {"limits": {"cpu": "0.10"}}},
               {"name": "two", "image": "b:1", "ofTomorrow": true, "resources": {}}]}, "status": {}}}
            """;

    @Test
    void anUnchangedObjectIsNoChange() {
        Review review = Review.fromJson(POD);
        Pod pod = review.object(Pod.class);
        assertEquals("web", pod.getMetadata().getName());
        review.setObject(pod);
        assertTrue(review.changes().isEmpty(), () -> review.changes().toString());
    }

    @Test
    void onlyWhatWasChangedIsCarriedOver() {
        Review review = Review.fromJson(POD);
        Pod pod = review.object(Pod.class);
        for (Container container : pod.getSpec().getContainers()) {
            container.setImagePullPolicy("Always");
        }
        pod.getMetadata().getLabels().put("team", "shop");
        review.setObject(pod);
        assertPatch(
                "[{'op':'add','path':'/metadata/labels/team','value':'shop'},"
                        + "{'op':'add','path':'/spec/containers/0/imagePullPolicy','value':'Always'},"
                        + "{'op':'add','path':'/spec/containers/1/imagePullPolicy','value':'Always'}]",
                review);
    }

    @Test
    void whatWasTakenAwayGoes() {
        Review review = Review.fromJson(POD);
        Pod pod = review.object(Pod.class);
        pod.getMetadata().setLabels(null);
        pod.getSpec().setTerminationGracePeriodSeconds(null);
        review.setObject(pod);
        assertPatch(
                "[{'op':'remove','path':'/metadata/labels'},"
                        + "{'op':'remove','path':'/spec/terminationGracePeriodSeconds'}]",
                review);
    }

    @Test
    void aCopyMadeByABuilderWillDo() {
        Review review = Review.fromJson(POD);
        Pod pod = review.object(Pod.class);
        review.setObject(new PodBuilder(pod).editMetadata().addToLabels("a", "2").endMetadata().build());
        assertPatch("[{'op':'replace','path':'/metadata/labels/a','value':'2'}]", review);
    }

    @Test
    void aListOfAnotherLengthIsWrittenAnew() {
        Review review = Review.fromJson(POD);
        Pod pod = review.object(Pod.class);
        pod.getSpec()
                .getContainers()
                .add(
                        new ContainerBuilder()
                                .withName("three")
                                .withNewResources()
                                .withRequests(Map.of("cpu", new Quantity("10m")))
                                .endResources()
                                .build());
        review.setObject(pod);
        assertEquals(3, review.object().at("/spec/containers").size());
        assertEquals("10m", review.object().at("/spec/containers/2/resources/requests/cpu").stringValue());
    }

    @Test
    void bothWaysOfChangingGoTogether() {
        Review review = Review.fromJson(POD);
        Pod pod = review.object(Pod.class);
        ((ObjectNode) review.object().at("/metadata/labels")).put("b", "2");
        pod.getMetadata().setName("other");
        review.setObject(pod);
        pod.getMetadata().setName("web");
        review.setObject(pod);
        assertPatch("[{'op':'add','path':'/metadata/labels/b','value':'2'}]", review);
    }

    private static void assertPatch(String expected, Review review) {
        assertEquals(Json.MAPPER.readTree(expected.replace('\'', '"')), review.changes());
    }
}
